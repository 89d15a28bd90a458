// What the CUDA runtime's own copies take: host to device, device to host, device to device, to a peer.
// Build and run: nvcc -O3 -arch=sm_90 -o copies copies.cu && ./copies        (one JSON object a line)
// copies.py does both, and sets the same copies issued by aorta beside it.
#include <cuda_runtime.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { \
    fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_)); exit(1); } } while (0)

// As many copies as are issued in one iteration of aorta's file.
static int count(size_t bytes) { return bytes < (size_t(64) << 20) ? 50 : 10; }

// Microseconds of a copy: the median over 30 repetitions of the time between two events around as many copies.
template <class F> static void timed(const char* what, size_t bytes, cudaStream_t stream, F copy) {
    cudaEvent_t from, to;
    CHECK(cudaEventCreate(&from)); CHECK(cudaEventCreate(&to));
    std::vector<float> times;
    for (int turn = 0; turn < 35; turn++) {
        CHECK(cudaEventRecord(from, stream));
        for (int i = 0; i < count(bytes); i++) CHECK(copy());
        CHECK(cudaEventRecord(to, stream));
        CHECK(cudaEventSynchronize(to));
        float ms; CHECK(cudaEventElapsedTime(&ms, from, to));
        if (turn >= 5) times.push_back(ms * 1e3f / count(bytes));
    }
    std::sort(times.begin(), times.end());
    printf("{\"copy\":\"%s\",\"bytes\":%zu,\"us\":%.4f}\n", what, bytes, times[times.size() / 2]);
    fflush(stdout);
    CHECK(cudaEventDestroy(from)); CHECK(cudaEventDestroy(to));
}

int main() {
    int devices = 0; CHECK(cudaGetDeviceCount(&devices));
    const size_t most = 256u << 20;
    void *host, *near, *other, *peer = nullptr;
    CHECK(cudaMallocHost(&host, most)); CHECK(cudaMalloc(&near, most)); CHECK(cudaMalloc(&other, most));
    cudaStream_t s; CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    int can = 0;
    if (devices > 1) CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
    if (can) {
        CHECK(cudaDeviceEnablePeerAccess(1, 0));
        CHECK(cudaSetDevice(1)); CHECK(cudaMalloc(&peer, most)); CHECK(cudaSetDevice(0));
    }
    for (size_t bytes : {size_t(64) << 10, size_t(1) << 20, size_t(16) << 20, size_t(256) << 20}) {
        timed("h2d", bytes, s, [&] { return cudaMemcpyAsync(near, host, bytes, cudaMemcpyHostToDevice, s); });
        timed("d2h", bytes, s, [&] { return cudaMemcpyAsync(host, near, bytes, cudaMemcpyDeviceToHost, s); });
        timed("d2d", bytes, s, [&] { return cudaMemcpyAsync(other, near, bytes, cudaMemcpyDeviceToDevice, s); });
        if (can) timed("p2p", bytes, s, [&] { return cudaMemcpyPeerAsync(peer, 1, near, 0, bytes, s); });
    }
}
