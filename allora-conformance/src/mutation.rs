//! Inputs of parsers: seeds, and mutations of them that follow from a number.

use crate::random::Random;

/// Pieces of text that parsers get wrong more often than others.
const WORDS: [&[u8]; 22] = [
    b"0",
    b"-1",
    b"9223372036854775807",
    b"18446744073709551616",
    b"1e400",
    b"*/0",
    b"%",
    b"%00",
    b"\0",
    b"\r\n",
    b"\t",
    b"\"",
    b"\\",
    b"{",
    b"[[[[",
    b";",
    b":",
    b"@",
    b"\xc2\xa0",
    "\u{202e}".as_bytes(),
    "é".as_bytes(),
    b"\xff",
];

/// These seeds and then mutations of them, `count` in all. The same `seed` makes the same ones.
pub fn mutations<'a>(
    seeds: &'a [&'a [u8]],
    seed: u64,
    count: usize,
) -> impl Iterator<Item = Vec<u8>> + 'a {
    let mut random = Random::new(seed);
    let mutated = std::iter::repeat_with(move || mutated(seeds, &mut random));
    seeds.iter().map(|seed| seed.to_vec()).chain(mutated).take(count)
}

fn mutated(seeds: &[&[u8]], random: &mut Random) -> Vec<u8> {
    let mut input = random.pick(seeds).map(|seed| seed.to_vec()).unwrap_or_default();
    for _ in 0..=random.below(3) {
        let at = random.below(input.len() as u64 + 1) as usize;
        let end = (at + random.below(8) as usize).min(input.len());
        match random.below(5) {
            0 => drop(input.drain(at..end)),
            1 => {
                let twice = input[at..end].to_vec();
                input.splice(at..at, twice);
            }
            2 => {
                let word = random.pick(&WORDS).copied().unwrap_or_default();
                input.splice(at..end, word.iter().copied());
            }
            3 => {
                let other = random.pick(seeds).copied().unwrap_or_default();
                let from = random.below(other.len() as u64 + 1) as usize;
                input.splice(at.., other[from..].iter().copied());
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
    input
}

#[cfg(test)]
mod tests {
    use super::mutations;

    #[test]
    fn the_seeds_come_first_and_the_same_number_makes_the_same_mutations() {
        let seeds: [&[u8]; 2] = [b"@every 5m", b"0 9 * * *"];
        let made = |seed| mutations(&seeds, seed, 50).collect::<Vec<_>>();
        assert_eq!(made(1)[..2], seeds);
        assert_eq!(made(1), made(1));
        assert_ne!(made(1), made(2));
        assert_eq!(made(1).len(), 50);
    }
}
