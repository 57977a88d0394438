//! Runs one target: built for libFuzzer by `cargo xtask fuzz`, and otherwise on the files of its arguments, as on
//! an input that libFuzzer has kept.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
mod engine {
    #![allow(unsafe_code, reason = "the engine calls a function by its name")]

    use allora_fuzz::Target;
    use std::{env, fs, sync::OnceLock};

    static TARGET: OnceLock<&'static Target> = OnceLock::new();

    /// Finds the target, and adds its seeds to the folder of its inputs, which the engine then reads.
    fn begin() {
        let name = env::var("ALLORA_FUZZ_TARGET").expect("ALLORA_FUZZ_TARGET names a target");
        let target = Target::named(&name).expect("ALLORA_FUZZ_TARGET names a target");
        if let Ok(folder) = env::var("ALLORA_FUZZ_INPUTS") {
            for (i, seed) in target.seeds().iter().enumerate() {
                fs::write(format!("{folder}/seed-{i}"), seed).expect("the folder can be written");
            }
        }
        TARGET.get_or_init(|| target);
    }

    libfuzzer_sys::fuzz_target!(init: begin(), |data: &[u8]| {
        (TARGET.get().expect("it was set").run)(data);
    });
}

#[cfg(not(fuzzing))]
fn main() {
    let mut args = std::env::args().skip(1);
    let target = args.next().and_then(|name| allora_fuzz::Target::named(&name));
    let target = target.expect("the first argument names a target, such as cron");
    for file in args {
        (target.run)(&std::fs::read(file).expect("the other arguments are files"));
    }
}
