// What the CUDA runtime itself costs on this machine: the floor under any executor.
// Build and run: nvcc -O3 -arch=sm_90 -o floor floor.cu && ./floor        (one JSON object a line)
// floor.py does both, and sets the same calls issued by aorta beside it.
#include <cuda_runtime.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

using Clock = std::chrono::steady_clock;

#define CHECK(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { \
    fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_)); exit(1); } } while (0)

__global__ void nop() {}

static double micros(Clock::time_point a, Clock::time_point b) { return std::chrono::duration<double, std::micro>(b - a).count(); }

static double median(std::vector<double> v) { std::sort(v.begin(), v.end()); return v[v.size() / 2]; }

static std::vector<cudaStream_t> streams(int n) {
    std::vector<cudaStream_t> s(n);
    for (auto& x : s) CHECK(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking));
    return s;
}

static cudaEvent_t event(unsigned flags) { cudaEvent_t e; CHECK(cudaEventCreateWithFlags(&e, flags)); return e; }

// Median over `reps` of (host time, total time) for `n` repetitions of `body`, in microseconds each.
template <class F> static void timed(const char* what, int n, F body) {
    std::vector<double> host, total;
    for (int rep = 0; rep < 7; rep++) {
        CHECK(cudaDeviceSynchronize());
        auto a = Clock::now();
        for (int i = 0; i < n; i++) body(i);
        auto b = Clock::now();
        CHECK(cudaDeviceSynchronize());
        auto c = Clock::now();
        if (rep) { host.push_back(micros(a, b) / n); total.push_back(micros(a, c) / n); }
    }
    printf("{\"probe\":\"%s\",\"n\":%d,\"host_us\":%.4f,\"total_us\":%.4f}\n", what, n, median(host), median(total));
    fflush(stdout);
}

int main() {
    cudaDeviceProp p; CHECK(cudaGetDeviceProperties(&p, 0));
    printf("{\"probe\":\"device\",\"name\":\"%s\",\"sms\":%d,\"copy_engines\":%d,\"l2_bytes\":%d}\n", p.name, p.multiProcessorCount, p.asyncEngineCount, p.l2CacheSize);
    auto s = streams(64);
    for (int ns : {1, 2, 4, 8, 16, 32, 64}) {
        char name[64]; snprintf(name, sizeof name, "launch_streams_%d", ns);
        timed(name, 20000, [&](int i) { nop<<<1, 1, 0, s[i % ns]>>>(); });
    }
    for (int ns : {1, 8, 32}) {                                   // fewer than a stream holds: the host never waits for room
        char name[64]; snprintf(name, sizeof name, "burst_streams_%d", ns);
        timed(name, 500, [&](int i) { nop<<<1, 1, 0, s[i % ns]>>>(); });
    }
    cudaEvent_t order = event(cudaEventDisableTiming), stamp = event(cudaEventDefault);
    timed("record_order_event", 20000, [&](int) { cudaEventRecord(order, s[0]); });
    timed("record_timing_event", 20000, [&](int) { cudaEventRecord(stamp, s[0]); });
    timed("record_and_wait", 20000, [&](int i) { cudaEventRecord(order, s[i & 1]); cudaStreamWaitEvent(s[~i & 1], order, 0); });
    timed("dependent_chain_two_streams", 20000, [&](int i) {
        nop<<<1, 1, 0, s[i & 1]>>>(); cudaEventRecord(order, s[i & 1]); cudaStreamWaitEvent(s[~i & 1], order, 0); });
    timed("kernel_between_timing_events", 20000, [&](int) { cudaEventRecord(stamp, s[0]); nop<<<1, 1, 0, s[0]>>>(); cudaEventRecord(stamp, s[0]); });
    for (int wide : {1, 4, 8, 16, 32, 64}) {                      // a graph of 1024 nodes, forked over `wide` streams and joined
        const int nodes = 1024;
        cudaGraph_t graph; cudaGraphExec_t exec; cudaEvent_t fork = event(cudaEventDisableTiming);
        CHECK(cudaStreamBeginCapture(s[0], cudaStreamCaptureModeThreadLocal));
        CHECK(cudaEventRecord(fork, s[0]));
        for (int i = 1; i < wide; i++) CHECK(cudaStreamWaitEvent(s[i], fork, 0));
        for (int i = 0; i < nodes; i++) nop<<<1, 1, 0, s[i % wide]>>>();
        for (int i = 1; i < wide; i++) { cudaEvent_t join = event(cudaEventDisableTiming); CHECK(cudaEventRecord(join, s[i])); CHECK(cudaStreamWaitEvent(s[0], join, 0)); }
        CHECK(cudaStreamEndCapture(s[0], &graph));
        CHECK(cudaGraphInstantiate(&exec, graph, 0)); CHECK(cudaGraphUpload(exec, s[0]));
        char name[64]; snprintf(name, sizeof name, "graph_1024_nodes_wide_%d", wide);
        timed(name, 50, [&](int) { cudaGraphLaunch(exec, s[0]); });
    }
    const size_t bytes = 256u << 20; void *host, *dev, *dev2;
    CHECK(cudaMallocHost(&host, bytes)); CHECK(cudaMalloc(&dev, bytes)); CHECK(cudaMalloc(&dev2, bytes));
    timed("copy_h2d_256MiB", 10, [&](int) { cudaMemcpyAsync(dev, host, bytes, cudaMemcpyHostToDevice, s[0]); });
    timed("copy_d2h_256MiB", 10, [&](int) { cudaMemcpyAsync(host, dev, bytes, cudaMemcpyDeviceToHost, s[0]); });
    timed("copy_d2d_256MiB", 50, [&](int) { cudaMemcpyAsync(dev2, dev, bytes, cudaMemcpyDeviceToDevice, s[0]); });
}
