use proptest::prelude::*;

use super::*;

/// Payloads as packets, numbered from 1.
fn packets(payloads: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (sequence, payload) in (1u8..).zip(payloads) {
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes()[..3]);
        bytes.push(sequence);
        bytes.extend_from_slice(payload);
    }
    bytes
}

fn scan(bytes: &[u8]) -> Result<Option<Result<StatementResult, ServerRefusal>>, WireError> {
    ResponseScanner::default().push(bytes)
}

const OK: &[u8] = &[0, 3, 0xfc, 1, 1, 2, 0, 0, 0];
const OK_MORE: &[u8] = &[0, 1, 0, 10, 0, 0, 0];
const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];
const ERROR: &[u8] = b"\xff\xbd\x04#40001Deadlock found";

#[test]
fn ok_and_error_packets_are_read() {
    let bytes = packets(&[OK]);
    assert_eq!(
        scan(&bytes),
        Ok(Some(Ok(StatementResult {
            rows: 0,
            affected: 3,
            bytes: bytes.len() as u64,
            last_id: 257,
            warnings: 0,
            first: None,
        })))
    );
    let refusal = ServerRefusal {
        code: 1213,
        state: "40001".to_owned(),
        message: "Deadlock found".to_owned(),
    };
    assert_eq!(scan(&packets(&[ERROR])), Ok(Some(Err(refusal))));
}

#[test]
fn rows_are_counted() {
    let row: &[u8] = &[0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    let with = packets(&[&[2], b"def one", b"def two", EOF, row, &[0, 1], row, EOF]);
    assert_eq!(scan(&with).unwrap().unwrap().unwrap().rows, 3);
    // A row may begin like an end: its first value is longer than 16 MiB, or a longer packet.
    let like: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        scan(&packets(&[&[1], b"def", EOF, like, EOF]))
            .unwrap()
            .unwrap()
            .unwrap()
            .rows,
        1
    );
}

#[test]
fn error_among_rows_and_multiple_results_are_read() {
    let answer = scan(&packets(&[&[1], b"def", EOF, &[1, b'x'], ERROR]))
        .unwrap()
        .unwrap();
    assert_eq!(answer.unwrap_err().message, "Deadlock found");
    let eof_more: &[u8] = &[0xfe, 0, 0, 10, 0];
    let answer = scan(&packets(&[
        OK_MORE,
        &[1],
        b"def",
        EOF,
        &[1, b'x'],
        eof_more,
        OK,
    ]))
    .unwrap()
    .unwrap()
    .unwrap();
    assert_eq!((answer.rows, answer.affected), (1, 4));
}

/// The answer with one row of two columns, of which the first has this type.
fn examined(kind: u8, flags: u8, row: &[u8]) -> Option<u64> {
    let mut definition = b"\x03def\x01s\x01t\x01t\x01v\x01v\x0c".to_vec();
    definition.extend_from_slice(&[45, 0, 20, 0, 0, 0, kind, flags, 0, 0, 0, 0]);
    let bytes = packets(&[&[2], &definition, b"\x03def", EOF, row, row, EOF]);
    let mut scanner = ResponseScanner::default();
    scanner.begin(Answer::Examined);
    let mut answer = None;
    // Byte by byte, so that nothing depends on the pieces.
    for byte in &bytes {
        answer = scanner.push(&[*byte]).unwrap();
    }
    let answer = answer.unwrap().unwrap();
    assert_eq!(answer.rows, 2);
    answer.first
}

#[test]
fn first_integer_is_read_in_every_type() {
    let long = [0, 0, 7, 1, 0, 0, 0, 0, 0, 0, 1, b'x'];
    assert_eq!(examined(8, 0, &long), Some(263));
    assert_eq!(examined(3, 0, &[0, 0, 1, 0, 1, 0, 9]), Some(65_537));
    assert_eq!(examined(2, 0, &[0, 0, 0xff, 0x7f]), Some(32_767));
    assert_eq!(examined(1, 0, &[0, 0, 0xff]), None, "-1");
    assert_eq!(examined(1, 0x20, &[0, 0, 0xff]), Some(255));
    assert_eq!(examined(253, 0, b"\0\0\x0212"), Some(12));
    assert_eq!(examined(253, 0, b"\0\0\x02xy"), None);
    assert_eq!(examined(8, 0, &[0, 0b100, 1, b'x']), None, "NULL");
    assert_eq!(examined(5, 0, &long), None, "a floating-point number");
    assert_eq!(examined(8, 0, &[0, 0, 7]), None, "truncated");
}

#[test]
fn prepared_statement_is_read_with_its_definitions() {
    let prepare = |packet: &[u8], definitions: &[&[u8]]| {
        let mut scanner = ResponseScanner::default();
        scanner.begin(Answer::Prepared);
        let payloads: Vec<&[u8]> = [&[packet], definitions].concat();
        scanner.push(&packets(&payloads)).unwrap().unwrap().unwrap();
        scanner.prepared()
    };
    let found = prepare(
        &[0, 1, 0, 2, 0, 1, 0, 2, 0, 0, 0, 0],
        &[b"?", b"?", EOF, b"def", EOF],
    );
    assert_eq!((found.id, found.parameters), (0x2_0001, 2));
    let found = prepare(&[0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]);
    assert_eq!((found.id, found.parameters), (9, 0));
}

#[test]
fn row_in_several_packets_counts_once() {
    let mut bytes = packets(&[&[1], b"def", EOF]);
    let mut big = vec![0xff, 0xff, 0xff, 4, 0xfe];
    big.resize(4 + MAX_PACKET_LENGTH as usize, 0);
    // The first bytes of the row and of its continuation may equal those of an end of rows.
    big.extend_from_slice(&[5, 0, 0, 5, 0xfe, 0, 0, 2, 0]);
    bytes.extend_from_slice(&big);
    bytes.extend_from_slice(&[5, 0, 0, 6, 0xfe, 0, 0, 2, 0]);
    assert_eq!(scan(&bytes).unwrap().unwrap().unwrap().rows, 1);
}

#[test]
fn invalid_response_is_refused() {
    assert_eq!(
        scan(&[1, 0, 0, 2, 0]),
        Err(WireError::Sequence { got: 2, wanted: 1 })
    );
    assert_eq!(
        scan(&[0, 0, 0, 1]),
        Err(WireError::Malformed("a packet is empty"))
    );
    assert!(matches!(
        scan(&packets(&[&[0xfb, b'/']])),
        Err(WireError::WantsFile { sequence: 2 })
    ));
    let mut two = packets(&[OK]);
    two.push(9);
    assert_eq!(scan(&two), Err(WireError::Beyond(1)));
    assert!(scan(&packets(&[&[1], b"def", b"no end"])).is_err());
    assert!(scan(&packets(&[&[0, 0xfc, 1]])).is_err());
}

#[test]
fn error_before_the_command_is_no_answer() {
    // As MySQL sends it to an idle connection.
    let payload = b"\xff\xbf\x0f#HY000The client was disconnected";
    let mut bytes = packets(&[payload]);
    bytes[3] = 0;
    let Err(WireError::Closing(refusal)) = scan(&bytes) else {
        panic!("{:?}", scan(&bytes));
    };
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (4031, "The client was disconnected")
    );
    let mut other = packets(&[OK]);
    other[3] = 0;
    assert_eq!(scan(&other), Err(WireError::Sequence { got: 0, wanted: 1 }));
}

/// A row of more than 100 MB, and as many short ones, in the pieces in which a connection reads them.
#[test]
fn answer_of_100_mb_is_counted_and_not_kept() {
    let mut scanner = ResponseScanner::default();
    let head = packets(&[&[1], b"def", EOF]);
    assert_eq!(scanner.push(&head), Ok(None));
    let mut sequence = 4u8;
    let mut header = |length: u32| {
        let [a, b, c, _] = length.to_le_bytes();
        let header = [a, b, c, sequence];
        sequence = sequence.wrapping_add(1);
        header
    };
    let piece = [7; 16 << 10];
    for packet in 0..7u8 {
        let length = if packet < 6 { MAX_PACKET_LENGTH } else { 100 };
        assert_eq!(scanner.push(&header(length)), Ok(None));
        let mut left = length as usize;
        while left > 0 {
            let take = left.min(piece.len());
            assert_eq!(scanner.push(&piece[..take]), Ok(None));
            left -= take;
        }
    }
    for _ in 0..100_000 {
        assert_eq!(scanner.push(&header(1000)), Ok(None));
        assert_eq!(scanner.push(&piece[..1000]), Ok(None));
    }
    let end = [&header(EOF.len() as u32), EOF].concat();
    let answer = scanner.push(&end).unwrap().unwrap().unwrap();
    assert_eq!(answer.rows, 100_001);
    assert!(answer.bytes > 200_000_000, "{answer:?}");
    assert!(scanner.kept.capacity() <= KEPT_OF_VALUES);
}

proptest! {
    #[test]
    fn no_bytes_panic_and_memory_is_bounded(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..20), of in 0usize..3) {
        let mut scanner = ResponseScanner::default();
        scanner.begin([Answer::Counted, Answer::Examined, Answer::Prepared][of]);
        for piece in &pieces {
            let _ = scanner.push(piece);
            prop_assert!(scanner.kept.len() <= KEPT_OF_VALUES);
        }
    }

    #[test]
    fn hostile_packets_do_not_panic(payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..20), 1..10), of in 0usize..3) {
        let refs: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        let mut scanner = ResponseScanner::default();
        scanner.begin([Answer::Counted, Answer::Examined, Answer::Prepared][of]);
        let _ = scanner.push(&packets(&refs));
    }

    #[test]
    fn any_split_of_a_response_reads_the_same(rows in proptest::collection::vec(proptest::collection::vec(1u8..250, 1..40), 0..20), cuts in proptest::collection::vec(1usize..30, 1..50), fails in any::<bool>()) {
        let mut payloads: Vec<&[u8]> = vec![&[3], b"def a", b"def b", b"def c", EOF];
        payloads.extend(rows.iter().map(Vec::as_slice));
        payloads.push(if fails { ERROR } else { EOF });
        let bytes = packets(&payloads);
        let whole = scan(&bytes).unwrap();
        let mut scanner = ResponseScanner::default();
        scanner.begin(Answer::Counted);
        let (mut rest, mut cut, mut got) = (bytes.as_slice(), cuts.iter().cycle(), None);
        while !rest.is_empty() {
            prop_assert!(got.is_none());
            let take = (*cut.next().unwrap()).min(rest.len());
            got = scanner.push(&rest[..take]).unwrap();
            rest = &rest[take..];
        }
        prop_assert_eq!(got, whole);
    }
}
