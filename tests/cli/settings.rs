//! Sources of a run's settings: flags, scenarios, the user's file, variables for the driver.

use super::sandbox::{Sandbox, finish, project};

const SCENARIO: &str = r#"(
    description: "What one team hands to another",
    workload: "../net.aorta",
    preset: "wide",
    params: {"layers": "3", "rows": "64"},
    streams: 4,
    environment: {"CUDA_DEVICE_MAX_CONNECTIONS": "5", "NCCL_DEBUG": "WARN"},
    backend: "sim",
    profile: "mi300x",
    launch: "graph",
    effort: quick,
)"#;

/// A scenario beside a workload: both handed over in one folder.
fn scenario() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("given/a.ron", SCENARIO);
    let net = project().join("examples/05-parameters.aorta");
    sandbox.write("net.aorta", std::fs::read(net).expect("the example is there"));
    sandbox
}

#[test]
fn a_scenario_says_everything() {
    let sandbox = scenario();
    sandbox.good(&["exec", "given/a.ron", "--json", "a.json"]);
    let record = sandbox.json("a.json");
    let params = &record["workload"]["params"];
    assert_eq!(record["workload"]["preset"], "wide");
    assert_eq!([&params["width"], &params["layers"], &params["rows"], &params["streams"]], ["4096", "3", "64", "4"]);
    assert_eq!(record["settings"]["backend"], "sim");
    assert_eq!(record["settings"]["launch"], "graph");
    assert_eq!(record["settings"]["effort"], "quick");
    assert_eq!(record["device"]["name"], "AMD Instinct MI300X (simulated)");
    let variables = &record["environment"]["variables"];
    assert_eq!([&variables["CUDA_DEVICE_MAX_CONNECTIONS"], &variables["NCCL_DEBUG"]], ["5", "WARN"]);
}

#[test]
fn flags_override_a_scenario() {
    let sandbox = scenario();
    let arguments = "exec given/a.ron --json a.json --preset tiny --set layers=5 --streams 3 --launch stream \
        --effort sanity --config profile=h200 --backend host --env NCCL_DEBUG=INFO";
    sandbox.good(&arguments.split_whitespace().collect::<Vec<_>>());
    let record = sandbox.json("a.json");
    let params = &record["workload"]["params"];
    assert_eq!(record["workload"]["preset"], "tiny");
    // Options without a flag still come from the scenario.
    assert_eq!([&params["width"], &params["layers"], &params["rows"], &params["streams"]], ["16", "5", "64", "3"]);
    assert_eq!(record["settings"]["backend"], "host");
    assert_eq!(record["settings"]["launch"], "stream");
    assert_eq!(record["settings"]["effort"], "sanity");
    let variables = &record["environment"]["variables"];
    assert_eq!([&variables["CUDA_DEVICE_MAX_CONNECTIONS"], &variables["NCCL_DEBUG"]], ["5", "INFO"]);
    sandbox.good(&["exec", "given/a.ron", "--json", "a.json", "--config", "profile=h200"]);
    assert_eq!(sandbox.json("a.json")["device"]["name"], "NVIDIA H200 (simulated)");
}

#[test]
fn a_scenario_s_device_applies_only_to_its_backend() {
    let sandbox = Sandbox::new();
    sandbox.write("a.ron", "(workload: \"moe\", preset: \"tiny\", backend: \"cuda\", device: 7)");
    sandbox.good(&["exec", "a.ron", "--backend", "sim", "--effort", "sanity"]);
    sandbox.write("b.ron", "(workload: \"moe\", preset: \"tiny\", backend: \"sim\", device: 7)");
    let output = sandbox.run(&["exec", "b.ron"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("aorta::cli::no_devices"), "{}", output.stderr);
    // No backend is given: the simulator is only used without a GPU.
    if super::sandbox::no_cuda(&sandbox) {
        sandbox.good(&["exec", "moe", "--preset", "tiny", "--effort", "sanity", "--device", "7"]);
    }
}

#[test]
fn shipped_scenarios_run() {
    let sandbox = Sandbox::new();
    let Ok(entries) = std::fs::read_dir(project().join("config/scenarios")) else {
        println!("skipped: no scenario is shipped");
        return;
    };
    for entry in entries {
        let path = entry.expect("listed").path();
        let arguments = ["exec".as_ref(), path.as_os_str(), "--backend".as_ref(), "sim".as_ref()];
        let printed = sandbox.good(&[&arguments[..], &["--effort".as_ref(), "sanity".as_ref()]].concat());
        assert!(printed.contains("simulated"), "{printed}");
    }
}

#[test]
fn variables_reach_the_process() {
    let sandbox = Sandbox::new();
    let record = sandbox.record(&["moe", "--preset", "tiny"]);
    assert_eq!(record["environment"]["variables"], serde_json::json!({}));
    let record =
        sandbox.record(&["moe", "--preset", "tiny", "--env", "CUDA_LAUNCH_BLOCKING=1", "--env", "NCCL_NOTE=a=b"]);
    let expected = serde_json::json!({"CUDA_LAUNCH_BLOCKING": "1", "NCCL_NOTE": "a=b"});
    assert_eq!(record["environment"]["variables"], expected);
    // The command has the exit code of the run that it starts.
    sandbox.write("a.aorta", "step { nop() }\nexpect time > 1s");
    let arguments = ["--backend", "sim", "--env", "CUDA_A=1"];
    assert_eq!(sandbox.run(&[&["exec", "a.aorta"], &arguments[..]].concat()).code, Some(1));
    let after_option = [&["--diagnostics", "json", "exec", "a.aorta"], &arguments[..]].concat();
    assert_eq!(sandbox.run(&after_option).code, Some(1), "an option precedes the command");
    assert_eq!(sandbox.run(&[&["exec", "b.aorta"], &arguments[..]].concat()).code, Some(2));
}

#[test]
fn settings_come_in_layers() {
    let sandbox = Sandbox::new();
    let run = ["moe", "--preset", "tiny"];
    let profile = |extra: &[&str]| sandbox.record(&[&run[..], extra].concat())["device"]["name"].clone();
    let effort = |extra: &[&str]| sandbox.record(&[&run[..], extra].concat())["settings"]["effort"].clone();
    let (h200, mi300x) = ("NVIDIA H200 (simulated)", "AMD Instinct MI300X (simulated)");
    assert_eq!(profile(&[]), h200);
    assert_eq!(profile(&["--config", "profile=mi300x"]), mi300x);
    assert_eq!(effort(&[]), "full");
    sandbox.write_config("(profile: \"mi300x\", effort: quick)");
    assert_eq!(profile(&[]), mi300x);
    assert_eq!(effort(&[]), "quick");
    assert_eq!(effort(&["--effort", "sanity"]), "sanity");
    assert_eq!(profile(&["--config", "profile=h200"]), h200);
    sandbox.write("other.ron", "(effort: sanity)");
    // A file that is named stands in place of the user's own.
    assert_eq!(effort(&["--config-file", "other.ron"]), "sanity");
    assert_eq!(profile(&["--config-file", "other.ron"]), h200);
}

#[test]
fn a_profile_may_be_a_file() {
    let sandbox = Sandbox::new();
    let own = std::fs::read_to_string(project().join("config/devices/h200.ron")).expect("the profile is there");
    sandbox.write("own.ron", own.replace("NVIDIA H200", "Own device"));
    let record = sandbox.record(&["moe", "--preset", "tiny", "--config", "profile=own.ron"]);
    assert_eq!(record["device"]["name"], "Own device (simulated)");
}

#[test]
fn efforts_differ() {
    let sandbox = Sandbox::new();
    for (effort, warmup, iterations) in [("sanity", 0, 1), ("quick", 10, 5), ("full", 10, 100)] {
        let record = sandbox.record(&["moe", "--preset", "tiny", "--effort", effort]);
        assert_eq!(
            (&record["settings"]["warmup"], &record["settings"]["iterations"]),
            (&warmup.into(), &iterations.into())
        );
        assert_eq!(record["variants"][0]["time"]["samples_ns"].as_array().map(Vec::len), Some(iterations));
        assert_eq!(record["measurement"], effort != "sanity");
    }
    let record = sandbox.record(&["moe", "--preset", "tiny", "--warmup", "0", "--iterations", "7"]);
    assert_eq!(record["variants"][0]["time"]["n"], 7);
    let printed = sandbox.good(&["exec", "moe", "--preset", "tiny", "--backend", "sim", "--effort", "sanity"]);
    assert!(
        printed.contains("1 iteration, no measurement") && printed.contains("it is not a measurement"),
        "{printed}"
    );
}

/// Without measured iterations, one iteration is observed, and it is the first.
#[test]
fn a_look_is_short() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "a.aorta",
        "step { if iteration % 2 == 1 { spun: spin(1us) } else { nop() } }\nmetric work = time(spun)",
    );
    let value = |arguments: &[&str]| sandbox.record(arguments)["variants"][0]["metrics"][0]["value"].is_number();
    assert!(value(&["a.aorta", "--effort", "quick"]));
    assert!(!value(&["a.aorta", "--effort", "sanity"]));
}

#[test]
fn streams_are_a_parameter_or_a_ceiling() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "stream s[6]\nstep { for i in 0..6 { on s[i] { spin(1us) } } }");
    let lanes = |arguments: &[&str]| sandbox.record(arguments)["program"]["lanes"].as_array().map(Vec::len);
    assert_eq!(lanes(&["a.aorta"]), Some(6));
    assert_eq!(lanes(&["a.aorta", "--streams", "2"]), Some(2));
    assert_eq!(lanes(&["a.aorta", "--streams", "100000"]), Some(6));
    assert_eq!(lanes(&["moe", "--preset", "tiny", "--streams", "8"]), Some(8));
}

/// Variables that a shared machine sets for its libraries are passed on.
#[test]
fn variables_of_libraries_are_passed_on_as_found() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "step { nop() }");
    for value in ["0", "2"] {
        let mut command = sandbox.command(&["exec", "a.aorta", "--backend", "sim", "--json", "a.json"]);
        let output = finish(command.env("NCCL_NVLS_ENABLE", value).spawn().expect("the binary starts"));
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert_eq!(sandbox.json("a.json")["environment"]["variables"]["NCCL_NVLS_ENABLE"], value);
    }
}

/// The limit counts operations, without waits between streams; a note says that an iteration exceeds it.
#[test]
fn operations_up_to_the_limit_are_observed() {
    let sandbox = Sandbox::new();
    let run = |limit: usize| {
        let limit = format!("observed_operations={limit}");
        sandbox.record(&["moe", "--preset", "tiny", "--effort", "quick", "--config", &limit])
    };
    let variant = |limit| run(limit)["variants"][0].clone();
    let spans = |variant: &serde_json::Value| variant["ranks"][0]["trace"].as_array().expect("a list").len();
    let all = variant(100_000);
    let count = all["ranks"][0]["operations"].as_array().expect("a list").len();
    assert_eq!(spans(&variant(count)), spans(&all));
    let fewer = variant(count - 1);
    assert_eq!(spans(&fewer), 0);
    let says = format!("an iteration has {count}, more than `observed_operations` ({})", count - 1);
    assert!(fewer["notes"].to_string().contains(&says), "{}", fewer["notes"]);
    assert!(!all["notes"].to_string().contains("observed_operations"), "{}", all["notes"]);
}
