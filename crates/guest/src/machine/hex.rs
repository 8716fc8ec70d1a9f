//! Writes and reads registers in the usual notation, such as `"0x1f"`.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

pub(super) fn serialize<S: Serializer>(value: &u32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format!("{value:#x}"))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    u32::try_from(parse(&String::deserialize(from)?)?).map_err(D::Error::custom)
}

fn parse<E: Error>(text: &str) -> Result<u64, E> {
    let digits = text.strip_prefix("0x").ok_or_else(|| E::custom("a register is like \"0x1f\""))?;
    u64::from_str_radix(digits, 16).map_err(E::custom)
}

/// Writes and reads the value of an MSR that may not exist.
pub(super) mod optional {
    use super::{Deserialize, Deserializer, Serializer, parse};

    pub(in super::super) fn serialize<S: Serializer>(
        value: &Option<u64>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.serialize_str(&format!("{value:#x}")),
            None => to.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<u64>, D::Error> {
        Option::<String>::deserialize(from)?.as_deref().map(parse).transpose()
    }
}
