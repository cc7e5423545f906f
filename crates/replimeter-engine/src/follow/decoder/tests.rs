use proptest::prelude::*;

use super::{
    assembler::{MAX_TABLES, unwrapped},
    *,
};
use crate::{
    follow::{
        CommitTimes, TableId,
        event::{HEADER, kind},
    },
    position::CommitId,
};

/// Streams of servers (after the dump request, without checksums) while schemas and tables were
/// created, rows of two engines were written, the log was rotated, and XA, compressed and tagged
/// transactions were committed.
const MARIADB: &[u8] = include_bytes!("../data/mariadb-10.11.bin");
const MYSQL: &[u8] = include_bytes!("../data/mysql-9.7.bin");

type One = (Option<CommitId>, u64, Option<CommitTimes>, Vec<TableId>);

#[derive(Debug, Default, PartialEq)]
struct Whole {
    transactions: Vec<One>,
    stamps: Vec<i64>,
}

fn decode(pieces: impl Iterator<Item = Vec<u8>>) -> (Whole, Result<(), StreamError>, Decoder) {
    let mut decoder = Decoder::new(Position::default(), true);
    let mut whole = Whole::default();
    let mut result = Ok(());
    'pieces: for (time, piece) in pieces.enumerate() {
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let space = decoder.space();
            assert!(!space.is_empty());
            let count = space.len().min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            result = decoder.filled(
                count,
                Nanos(time as i64),
                &mut |arrived: CompleteTransaction<'_>| {
                    whole.transactions.push((
                        arrived.commit_id,
                        arrived.bytes,
                        arrived.commit,
                        arrived.tables.to_vec(),
                    ));
                    whole.stamps.push(arrived.arrived.0);
                },
            );
            if result.is_err() {
                break 'pieces;
            }
        }
    }
    (whole, result, decoder)
}

fn pieces(bytes: &[u8], size: usize) -> impl Iterator<Item = Vec<u8>> {
    bytes.chunks(size).map(<[u8]>::to_vec)
}

#[test]
fn mariadb_stream_is_decoded() {
    let (whole, result, decoder) = decode(pieces(MARIADB, 1 << 20));
    result.unwrap();
    let commit_ids: Vec<String> = whole
        .transactions
        .iter()
        .map(|one| one.0.unwrap().to_string())
        .collect();
    let numbers: Vec<u64> = commit_ids
        .iter()
        .map(|commit_id| commit_id.rsplit('-').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(
        numbers,
        (5..=20).collect::<Vec<_>>(),
        "each once and in order: {commit_ids:?}"
    );
    assert!(whole.transactions.iter().all(|one| one.2.is_none()));
    let tables = decoder.tables().unwrap();
    let insert = tables.name(whole.transactions[3].3[0]).unwrap();
    assert_eq!(insert, ("s", "t"));
    assert_eq!(decoder.counts().rotations, 1);
    assert_eq!(
        (decoder.counts().unknown, decoder.counts().partial_tables),
        (0, 0)
    );
    assert_eq!(
        decoder.position(),
        &Position {
            file: "binlog.000002".to_owned(),
            offset: 2614
        }
    );
}

#[test]
fn mysql_stream_with_tags_and_compression_is_decoded() {
    let (whole, result, decoder) = decode(pieces(MYSQL, 1 << 20));
    result.unwrap();
    let commit_ids: Vec<String> = whole
        .transactions
        .iter()
        .map(|one| one.0.unwrap().to_string())
        .collect();
    let numbers: Vec<&str> = commit_ids
        .iter()
        .map(|commit_id| commit_id.split_once(':').unwrap().1)
        .collect();
    let plain: Vec<String> = (5..=19).map(|number| number.to_string()).collect();
    assert_eq!(numbers[..15], plain);
    assert_eq!(numbers[15..], ["batch:1", "batch:2", "batch:3"]);
    // Commits are in order, and were written on this server.
    let times: Vec<CommitTimes> = whole
        .transactions
        .iter()
        .map(|one| one.2.unwrap())
        .collect();
    assert!(
        times
            .iter()
            .all(|time| time.original_us == time.immediate_us)
    );
    assert!(times.is_sorted_by_key(|time| time.immediate_us));
    let tables = decoder.tables().unwrap();
    // Including the compressed ones.
    for one in &whole.transactions[14..] {
        assert_eq!(tables.name(one.3[0]), Some(("s", "t")));
    }
    assert_eq!(decoder.counts().partial_tables, 0);
    assert_eq!(
        decoder.position(),
        &Position {
            file: "binlog.000002".to_owned(),
            offset: 3501
        }
    );
}

#[test]
fn any_split_of_the_bytes_decodes_the_same() {
    for stream in [MARIADB, MYSQL] {
        let (want, ..) = decode(pieces(stream, stream.len()));
        for size in [1, 2, 3, 7, 64, 1000] {
            let (got, result, _) = decode(pieces(stream, size));
            result.unwrap();
            assert_eq!(got.transactions, want.transactions);
            assert!(got.stamps.is_sorted() && got.stamps.len() > 1);
        }
    }
}

/// Encodes an event as packets.
fn packets(kind: u8, body: &[u8], sequence: &mut u8) -> Vec<u8> {
    // The status and the time.
    let mut payload = vec![0; 1 + 4];
    payload.push(kind);
    payload.extend_from_slice(&1u32.to_le_bytes());
    payload.extend_from_slice(&((HEADER + body.len()) as u32).to_le_bytes());
    payload.extend_from_slice(&4u32.to_le_bytes());
    payload.extend_from_slice(&0u16.to_le_bytes());
    payload.extend_from_slice(body);
    let mut out = Vec::new();
    let mut rest = payload.as_slice();
    loop {
        let now = rest.len().min(FULL_PACKET);
        out.extend_from_slice(&(now as u32).to_le_bytes()[..3]);
        out.push(*sequence);
        *sequence = sequence.wrapping_add(1);
        out.extend_from_slice(&rest[..now]);
        rest = &rest[now..];
        if now < FULL_PACKET {
            return out;
        }
    }
}

/// Returns MariaDB's GTID event with sequence `number`.
fn commit_id(number: u64) -> Vec<u8> {
    let mut body = number.to_le_bytes().to_vec();
    body.extend_from_slice(&[0; 11]);
    body
}

#[test]
fn huge_event_is_skipped_and_not_buffered() {
    const ROWS: u8 = 30;
    for size in [
        CAPACITY,
        FULL_PACKET - HEADER - 2,
        FULL_PACKET - HEADER - 1,
        FULL_PACKET - HEADER,
        40 << 20,
    ] {
        let mut sequence = 1;
        let mut stream = packets(kind::MARIADB_GTID, &commit_id(7), &mut sequence);
        stream.extend(packets(ROWS, &vec![0xaa; size], &mut sequence));
        stream.extend(packets(kind::XID, &[0; 8], &mut sequence));
        let (whole, result, decoder) = decode(pieces(&stream, 100_000));
        result.unwrap();
        assert_eq!(whole.transactions.len(), 1);
        assert_eq!(whole.transactions[0].1, (3 * HEADER + 19 + size + 8) as u64);
        assert!(decoder.head.capacity() <= 2 * HEAD);
    }
}

#[test]
fn errors_and_stream_ends_are_reported() {
    let mut packet = vec![
        0, 0, 0, 1, 0xff, 0xd4, 0x04, b'#', b'H', b'Y', b'0', b'0', b'0',
    ];
    packet.extend_from_slice(b"purged");
    packet[0] = packet.len() as u8 - 4;
    let (_, result, _) = decode(std::iter::once(packet));
    let want = StreamError::Refused {
        code: 1236,
        state: "HY000".to_owned(),
        message: "purged".to_owned(),
    };
    assert_eq!(result, Err(want));
    let (_, result, _) = decode(std::iter::once(vec![5, 0, 0, 1, 0xfe, 0, 0, 2, 0]));
    assert_eq!(result, Err(StreamError::Ended));
    // A wrong length, a lost packet, and a text that is not a stream.
    let mut stream = MYSQL.to_vec();
    stream[4 + 1 + 9] ^= 1;
    assert!(matches!(
        decode(pieces(&stream, 999)).1,
        Err(StreamError::Corrupt { .. })
    ));
    let first = 4 + usize::from(MYSQL[0]);
    assert!(matches!(
        decode(std::iter::once(
            [&MYSQL[..first], &MYSQL[first * 2..]].concat()
        ))
        .1,
        Err(StreamError::Corrupt { .. })
    ));
    assert!(
        decode(std::iter::once(b"HTTP/1.1 400 Bad Request\r\n".to_vec()))
            .0
            .transactions
            .is_empty()
    );
}

/// MariaDB compresses a statement's text only, and rows only: schema and tables are in clear.
#[test]
fn compressed_events_have_their_schema_and_tables() {
    const WRITE_ROWS_COMPRESSED: u8 = 166;
    let mut query = [0; 8].to_vec();
    query.extend([4, 0, 0, 0, 0]);
    query.extend(b"shop\0");
    query.extend([0x82, 1, 0x2c, 0x78, 0x9c, 0x4b]);
    let mut map = [0; 8].to_vec();
    map.extend(b"\x04shop\0\x06orders\0");
    let mut sequence = 1;
    let mut stream = Vec::new();
    for (number, events) in [
        (7, vec![(kind::QUERY_COMPRESSED, &query)]),
        (
            8,
            vec![(kind::TABLE_MAP, &map), (WRITE_ROWS_COMPRESSED, &query)],
        ),
    ] {
        stream.extend(packets(
            kind::MARIADB_GTID,
            &commit_id(number),
            &mut sequence,
        ));
        for (kind, body) in events {
            stream.extend(packets(kind, body, &mut sequence));
        }
        stream.extend(packets(kind::XID, &[0; 8], &mut sequence));
    }
    let (whole, result, decoder) = decode(pieces(&stream, 10));
    result.unwrap();
    let tables = decoder.tables().unwrap();
    let named = |one: &One| one.3.iter().map(|id| tables.name(*id).unwrap()).collect();
    let named: Vec<Vec<_>> = whole.transactions.iter().map(named).collect();
    assert_eq!(named, [[("shop", "")], [("shop", "orders")]]);
}

#[test]
fn unknown_events_are_counted_and_skipped() {
    let mut sequence = 1;
    let mut stream = packets(kind::MARIADB_GTID, &commit_id(7), &mut sequence);
    stream.extend(packets(200, &[1, 2, 3], &mut sequence));
    stream.extend(packets(kind::XID, &[0; 8], &mut sequence));
    let (whole, result, decoder) = decode(pieces(&stream, 10));
    result.unwrap();
    assert_eq!((whole.transactions.len(), decoder.counts().unknown), (1, 1));
}

#[test]
fn offsets_continue_beyond_four_gigabytes() {
    assert_eq!(unwrapped(100, 200), 200);
    assert_eq!(unwrapped(u64::from(u32::MAX) - 10, 5), (1 << 32) + 5);
    assert_eq!(unwrapped((1 << 32) + 5, 900), (1 << 32) + 900);
}

/// Returns whether the decoder's memory is bounded.
fn bounded(decoder: &Decoder) -> bool {
    decoder.head.capacity() <= 2 * HEAD && decoder.assembler.touched.len() <= MAX_TABLES
}

proptest! {
    #[test]
    fn random_bytes_do_not_panic_the_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..2000), size in 1usize..300) {
        let (_, _, decoder) = decode(pieces(&bytes, size));
        prop_assert!(bounded(&decoder));
    }

    #[test]
    fn truncated_and_mutated_streams_do_not_panic(
        mysql in any::<bool>(),
        cut in any::<proptest::sample::Index>(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        size in 1usize..3000,
    ) {
        let mut stream = if mysql { MYSQL } else { MARIADB }.to_vec();
        stream.truncate(cut.index(stream.len()) + 1);
        for (at, value) in changes {
            let at = at.index(stream.len());
            stream[at] = value;
        }
        let (_, _, decoder) = decode(pieces(&stream, size));
        prop_assert!(bounded(&decoder));
    }

    #[test]
    fn any_event_body_is_decoded_or_refused(events in proptest::collection::vec((any::<u8>(), proptest::collection::vec(any::<u8>(), 0..120)), 1..12)) {
        let mut sequence = 1;
        let stream: Vec<u8> = events.iter().flat_map(|(kind, body)| packets(*kind, body, &mut sequence)).collect();
        let (_, _, decoder) = decode(std::iter::once(stream));
        prop_assert!(bounded(&decoder));
    }
}
