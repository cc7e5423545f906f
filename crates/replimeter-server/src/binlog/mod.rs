//! tmp
/// tmp
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gtid(u64, u64);
impl std::str::FromStr for Gtid {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(text.len() as u64, text.rsplit(['-', ':']).next().unwrap_or_default().parse().map_err(|_| "x".to_owned())?))
    }
}
