//! Values of parameters and columns, and their random sources.

use replimeter_engine::wire::ParameterValue;
use replimeter_model::random::Random;

use super::distribution::{Distribution, Shape};

/// Receives the parameters of a statement, one after another.
pub(super) type ParameterSink<'a> = &'a mut dyn FnMut(ParameterValue<'_>);

/// A bound that may depend on how many rows the data set has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// A fixed number.
    Fixed(u64),
    /// The number of rows plus this number.
    Rows(i64),
}

impl Bound {
    fn of(self, rows: u64) -> u64 {
        match self {
            Self::Fixed(number) => number,
            Self::Rows(more) => rows.saturating_add_signed(more),
        }
    }
}

/// A constant value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Int(i64),
    Double(f64),
    Text(Vec<u8>),
}

impl Literal {
    fn bind(&self) -> ParameterValue<'_> {
        match self {
            Self::Int(number) => ParameterValue::Int(*number),
            Self::Double(number) => ParameterValue::Double(*number),
            Self::Text(bytes) => ParameterValue::Text(bytes),
        }
    }

    fn kind(&self) -> Option<ValueKind> {
        match self {
            Self::Int(_) => Some(ValueKind::Integer),
            Self::Double(_) => None,
            Self::Text(_) => Some(ValueKind::Text),
        }
    }
}

/// Source of a value, as written in the workload.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    /// Whole numbers from a range.
    Range(Shape, Bound, Bound),
    /// Numbers from this one on that no two threads and no two passes share.
    Sequence(Bound),
    /// Random letters and digits, with a length from this range.
    Text(u64, u64),
    /// A text in which `#` stands for a digit and `@` for a letter.
    Pattern(Vec<u8>),
    /// One of these, uniformly distributed.
    Choice(Vec<Literal>),
    /// A constant.
    Value(Literal),
    /// The number of the thread, from 1.
    Thread,
    /// The number of passes that this thread has started, from 1.
    Pass,
    /// The number of the row, from 1; only when rows are created.
    Row,
    /// Another number of the same statement or shared by the operation, plus this number.
    Plus(Place, i64),
}

/// Location of another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A parameter of the same statement, before this one.
    Own(usize),
    /// A shared value of the operation.
    Shared(usize),
}

/// A [`Source`] resolved for a data set of known size and a known number of threads.
#[derive(Clone, Debug)]
pub(super) enum Generator {
    Number(Distribution),
    /// The first number, and the index of the sequence in the workload.
    Sequence(u64, usize),
    Text(u64, u64),
    Pattern(Vec<u8>),
    Choice(Vec<Literal>),
    Value(Literal),
    Thread,
    Pass,
    Row,
    Plus(Place, i64),
}

impl Source {
    /// Resolves it for `rows` rows of data; `sequences` counts the sequences.
    pub(super) fn generator(&self, rows: u64, sequences: &mut usize) -> Generator {
        match self {
            Self::Range(shape, low, high) => {
                let low = low.of(rows);
                Generator::Number(Distribution::new(*shape, low, high.of(rows).max(low)))
            }
            Self::Sequence(first) => {
                let number = *sequences;
                *sequences += 1;
                Generator::Sequence(first.of(rows), number)
            }
            Self::Text(least, most) => Generator::Text(*least, *most),
            Self::Pattern(pattern) => Generator::Pattern(pattern.clone()),
            Self::Choice(literals) => Generator::Choice(literals.clone()),
            Self::Value(literal) => Generator::Value(literal.clone()),
            Self::Thread => Generator::Thread,
            Self::Pass => Generator::Pass,
            Self::Row => Generator::Row,
            Self::Plus(place, more) => Generator::Plus(*place, *more),
        }
    }

    /// Returns what all its values are; `None` if they differ, or are floating-point numbers.
    pub(super) fn kind(&self) -> Option<ValueKind> {
        match self {
            Self::Text(..) | Self::Pattern(_) => Some(ValueKind::Text),
            Self::Value(literal) => literal.kind(),
            Self::Choice(literals) => {
                let first = literals.first()?.kind();
                let same = literals.iter().all(|literal| literal.kind() == first);
                first.filter(|_| same)
            }
            _ => Some(ValueKind::Integer),
        }
    }

    /// Returns the approximate bytes of a value, for the size of a row.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Text(least, most) => least.midpoint(*most),
            Self::Pattern(pattern) => pattern.len() as u64,
            Self::Choice(literals) => {
                literals.iter().map(literal_bytes).sum::<u64>() / literals.len().max(1) as u64
            }
            Self::Value(literal) => literal_bytes(literal),
            _ => 4,
        }
    }

    /// Returns the maximum bytes of a value.
    pub(super) fn max_bytes(&self) -> u64 {
        match self {
            Self::Text(_, most) => *most,
            Self::Choice(literals) => literals.iter().map(literal_bytes).max().unwrap_or(0),
            other => other.bytes(),
        }
    }
}

/// What all values of a [`Source`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Text,
    Integer,
}

fn literal_bytes(literal: &Literal) -> u64 {
    match literal {
        Literal::Int(_) => 4,
        Literal::Double(_) => 8,
        Literal::Text(bytes) => bytes.len() as u64,
    }
}

/// State from which a thread draws values. A retried pass draws the same values from a copy.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    pub(super) random: Random,
    pub(super) thread: u32,
    pub(super) threads: u32,
    pub(super) pass: u64,
    pub(super) row: u64,
    /// Number of values drawn from each sequence.
    pub(super) sequences: Vec<u64>,
}

impl Draw {
    /// Creates the state of a thread, from 1; its random numbers are its own and the same in every run.
    pub(super) fn new(thread: u32, threads: u32, sequences: usize) -> Self {
        Self {
            random: Random::numbered(u64::from(thread)),
            thread,
            threads,
            pass: 0,
            row: 0,
            sequences: vec![0; sequences],
        }
    }

    /// Restores the state `earlier`, without allocating memory.
    pub(super) fn restore(&mut self, earlier: &Self) {
        self.random = earlier.random;
        self.pass = earlier.pass;
        self.row = earlier.row;
        self.sequences.copy_from_slice(&earlier.sequences);
    }
}

/// Values that later values of the same operation refer to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ReferencedValues {
    Number(i64),
    Bytes(Vec<u8>),
    Double(f64),
    Null,
}

impl ReferencedValues {
    pub(super) fn bind(&self) -> ParameterValue<'_> {
        match self {
            Self::Number(number) => ParameterValue::Int(*number),
            Self::Bytes(bytes) => ParameterValue::Text(bytes),
            Self::Double(number) => ParameterValue::Double(*number),
            Self::Null => ParameterValue::Null,
        }
    }

    pub(super) fn of(bind: ParameterValue<'_>) -> Self {
        match bind {
            ParameterValue::Null => Self::Null,
            ParameterValue::Int(number) => Self::Number(number),
            ParameterValue::UInt(number) => Self::Number(number as i64),
            ParameterValue::Double(number) => Self::Double(number),
            ParameterValue::Text(bytes) => Self::Bytes(bytes.to_vec()),
        }
    }
}

impl Generator {
    /// Returns the next value; text is written into `scratch`. `number` returns the value at
    /// another location.
    #[inline]
    pub(super) fn draw<'a>(
        &'a self,
        draw: &mut Draw,
        scratch: &'a mut Vec<u8>,
        number: impl Fn(Place) -> i64,
    ) -> ParameterValue<'a> {
        match self {
            Self::Number(distribution) => {
                ParameterValue::Int(distribution.draw(&mut draw.random) as i64)
            }
            Self::Sequence(first, which) => {
                let drawn = draw.sequences[*which];
                draw.sequences[*which] += 1;
                let offset = drawn
                    .wrapping_mul(u64::from(draw.threads))
                    .wrapping_add(u64::from(draw.thread.saturating_sub(1)));
                ParameterValue::Int(first.wrapping_add(offset) as i64)
            }
            Self::Text(least, most) => {
                let length = if least == most {
                    *least
                } else {
                    draw.random.between(*least, *most)
                };
                scratch.clear();
                fill_text(length, &mut draw.random, scratch);
                ParameterValue::Text(scratch)
            }
            Self::Pattern(pattern) => {
                scratch.clear();
                fill_pattern(pattern, &mut draw.random, scratch);
                ParameterValue::Text(scratch)
            }
            Self::Choice(literals) => match literals.len() {
                0 => ParameterValue::Null,
                count => literals[draw.random.between(0, count as u64 - 1) as usize].bind(),
            },
            Self::Value(literal) => literal.bind(),
            Self::Thread => ParameterValue::Int(i64::from(draw.thread)),
            Self::Pass => ParameterValue::Int(draw.pass as i64),
            Self::Row => ParameterValue::Int(draw.row as i64),
            Self::Plus(place, more) => ParameterValue::Int(number(*place).wrapping_add(*more)),
        }
    }
}

/// Writes random letters and digits, five bits per character.
pub(super) fn fill_text(length: u64, random: &mut Random, out: &mut Vec<u8>) {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut left = length as usize;
    while left > 0 {
        let mut bits = random.bits();
        let mut some = [0; 12];
        for byte in &mut some {
            *byte = ALPHABET[(bits & 31) as usize];
            bits >>= 5;
        }
        let take = left.min(12);
        out.extend_from_slice(&some[..take]);
        left -= take;
    }
}

/// Writes a pattern with its placeholders filled: `#` with a digit, `@` with a letter.
pub(super) fn fill_pattern(pattern: &[u8], random: &mut Random, out: &mut Vec<u8>) {
    let (mut bits, mut left) = (0u64, 0);
    for byte in pattern {
        let width = match byte {
            b'#' => 10,
            b'@' => 26,
            other => {
                out.push(*other);
                continue;
            }
        };
        if left == 0 {
            // Eight letters take 38 of the 64 bits; the bias of the last is below 2⁻²⁰.
            (bits, left) = (random.bits(), 8);
        }
        // The upper half of the product is the character's index, the lower half feeds the next one.
        let product = u128::from(bits) * width;
        bits = product as u64;
        left -= 1;
        let first = if width == 10 { b'0' } else { b'a' };
        out.push(first + (product >> 64) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(source: &Source, times: usize) -> Vec<ReferencedValues> {
        let mut sequences = 0;
        let generator = source.generator(100, &mut sequences);
        let mut draw = Draw::new(2, 3, sequences);
        let mut scratch = Vec::new();
        (0..times)
            .map(|_| ReferencedValues::of(generator.draw(&mut draw, &mut scratch, |_| 7)))
            .collect()
    }

    #[test]
    fn sequences_of_threads_do_not_overlap() {
        let source = Source::Sequence(Bound::Rows(1));
        assert_eq!(
            drawn(&source, 3),
            [102, 105, 108].map(ReferencedValues::Number)
        );
    }

    #[test]
    fn patterns_and_texts_fill_their_placeholders() {
        let ReferencedValues::Bytes(text) = &drawn(&Source::Pattern(b"##-@@@!".to_vec()), 1)[0]
        else {
            panic!("no text")
        };
        assert!(
            text[..2].iter().all(u8::is_ascii_digit) && text[2] == b'-' && text[6] == b'!',
            "{text:?}"
        );
        assert!(text[3..6].iter().all(u8::is_ascii_lowercase));
        for value in drawn(&Source::Text(3, 20), 50) {
            let ReferencedValues::Bytes(text) = value else {
                panic!("no text")
            };
            assert!((3..=20).contains(&text.len()) && text.iter().all(u8::is_ascii_alphanumeric));
        }
    }

    #[test]
    fn digits_are_uniform() {
        let mut random = Random::numbered(1);
        let mut out = Vec::new();
        fill_pattern(&[b'#'; 100_000], &mut random, &mut out);
        for digit in b'0'..=b'9' {
            let share = out.iter().filter(|byte| **byte == digit).count() as f64 / 1e5;
            assert!((share - 0.1).abs() < 0.005, "{digit}: {share}");
        }
    }

    #[test]
    fn bounds_follow_row_count_and_copy_draws_the_same() {
        assert_eq!(
            drawn(
                &Source::Range(Shape::Uniform, Bound::Rows(0), Bound::Fixed(100)),
                1
            ),
            [ReferencedValues::Number(100)]
        );
        assert_eq!(
            drawn(&Source::Plus(Place::Own(0), 3), 1),
            [ReferencedValues::Number(10)]
        );
        let generator = Source::Range(Shape::Zipf(0.8), Bound::Fixed(1), Bound::Rows(0))
            .generator(1000, &mut 0);
        let mut draw = Draw::new(1, 1, 0);
        let earlier = draw.clone();
        let first = ReferencedValues::of(generator.draw(&mut draw, &mut Vec::new(), |_| 0));
        draw.restore(&earlier);
        assert_eq!(
            ReferencedValues::of(generator.draw(&mut draw, &mut Vec::new(), |_| 0)),
            first
        );
    }
}
