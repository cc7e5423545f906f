//! Shared parts of the fuzz targets.

pub mod peers;
pub mod run;

use std::alloc::System;

use cap::Cap;

/// Maximum bytes that the inputs and the code under test may use together; libFuzzer does not allocate here.
const MAX_BYTES: usize = 64 << 20;

/// Aborts when the memory exceeds the limit, which libFuzzer reports with the input.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, MAX_BYTES);

/// Returns the bytes of a server that the input describes, and the length of the reads that return them. An odd first
/// byte makes packets with valid headers of the rest, which begins each payload with its length; `prepare` may
/// correct a payload. An even one uses the rest as it is.
pub fn server_bytes(input: &[u8], prepare: impl Fn(&mut Vec<u8>)) -> Option<(Vec<u8>, usize)> {
    let [mode, read, rest @ ..] = input else {
        return None;
    };
    let (read, mut rest) = (usize::from(*read) + 1, rest);
    if mode % 2 == 0 {
        return Some((rest.to_vec(), read));
    }
    let mut bytes = Vec::new();
    let mut sequence = 1u8;
    while let [length, after @ ..] = rest {
        let (payload, after) = after.split_at(after.len().min(usize::from(*length)));
        let mut payload = payload.to_vec();
        prepare(&mut payload);
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes()[..3]);
        bytes.push(sequence);
        bytes.extend_from_slice(&payload);
        sequence = sequence.wrapping_add(1);
        rest = after;
    }
    Some((bytes, read))
}

#[cfg(test)]
mod tests {
    use std::{
        env, fs,
        path::Path,
        time::{Duration, Instant},
    };

    use super::*;

    type Target = fn(&[u8]);

    /// Runs each target with its seeds and random changes of them for some seconds (`FUZZ_SECONDS`), without a guide to new code.
    #[test]
    fn targets_take_changed_seeds() {
        let seconds = env::var("FUZZ_SECONDS").map_or(1, |text| text.parse().unwrap());
        let targets: [(&str, Target); 5] = [
            ("login", peers::login),
            ("http", peers::http),
            ("url-list", peers::url_list),
            ("journal", run::journal),
            ("run-directory", run::run_directory),
        ];
        for (name, target) in targets {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("seeds")
                .join(name);
            let seeds = fs::read_dir(folder)
                .unwrap()
                .map(|seed| fs::read(seed.unwrap().path()).unwrap());
            let seeds: Vec<Vec<u8>> = seeds.collect();
            seeds.iter().for_each(|seed| target(seed));
            let (mut state, mut inputs) = (88_172_645_463_325_252_u64, 0_u64);
            let mut random = |most: usize| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) as usize % most.max(1)
            };
            let end = Instant::now() + Duration::from_secs(seconds);
            while Instant::now() < end {
                let mut input = seeds[random(seeds.len())].clone();
                for _ in 0..=random(4) {
                    let at = random(input.len() + 1);
                    match random(4) {
                        0 => input.truncate(at),
                        1 => input.insert(at, random(256) as u8),
                        2 if at < input.len() => input[at] = random(256) as u8,
                        _ => {
                            let other = &seeds[random(seeds.len())];
                            let from = random(other.len());
                            let part = other[from..(from + random(64)).min(other.len())].to_vec();
                            input.splice(at..at, part);
                        }
                    }
                }
                target(&input);
                inputs += 1;
            }
            println!("{name}: {inputs} inputs");
        }
    }
}
