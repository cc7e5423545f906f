//! Unique ids of a sandbox's cluster.

/// Unique ids of this sandbox's cluster.
pub(crate) struct Identity {
    /// 32 hexadecimal digits.
    pub(super) digits: String,
}

impl Identity {
    /// Returns the first eight digits.
    pub(crate) fn short(&self) -> &str {
        &self.digits[..8]
    }

    /// Returns a random `server_id`: MariaDB distinguishes its servers only by it.
    pub(crate) fn server_id(&self, number: usize) -> u32 {
        let base = u32::from_str_radix(&self.digits[..6], 16)
            .unwrap_or(1)
            .max(1);
        base << 8 | (u32::try_from(number).unwrap_or(0) + 1)
    }

    /// Returns a UUID, a different one for each number.
    pub(crate) fn uuid(&self, number: usize) -> String {
        let digits = &self.digits;
        // Version and variant of a random UUID (RFC 9562).
        format!(
            "{:08x}-{}-4{}-8{}-{}",
            number + 1,
            &digits[8..12],
            &digits[13..16],
            &digits[17..20],
            &digits[20..32]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_differ_and_are_well_formed() {
        let identity = Identity {
            digits: "0123456789abcdef0123456789abcdef".to_owned(),
        };
        assert_eq!(identity.server_id(1), 0x0123_4502);
        let (one, two) = (identity.uuid(0), identity.uuid(1));
        assert_ne!(one, two);
        assert_eq!(
            one.split('-').map(str::len).collect::<Vec<_>>(),
            [8, 4, 4, 4, 12]
        );
        assert!(one.as_bytes()[14] == b'4' && one.as_bytes()[19] == b'8');
    }
}
