//! The tokens that workers get with their runs: tickets that are signed.

use allora_core::{Error, Result, stored::RunTicket};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The shortest key, in bytes.
const SHORTEST: usize = 32;

/// The length of a signature, in bytes.
const SIGNATURE: usize = 32;

/// Signs and checks tokens of runs. A token has authority over one attempt. It is not encrypted: a worker can read its
/// ticket, but cannot forge another one.
#[derive(Clone)]
pub(crate) struct Tickets {
    keyed: Hmac<Sha256>,
}

impl Tickets {
    /// # Errors
    /// `Invalid` for a short key.
    pub(crate) fn new(key: &[u8]) -> Result<Self> {
        if key.len() < SHORTEST {
            let short = format!(
                "the key of a gateway has {} bytes; use {SHORTEST} random bytes or more",
                key.len()
            );
            return Err(Error::invalid(short));
        }
        let mut keyed: Hmac<Sha256> =
            KeyInit::new_from_slice(key).map_err(|error| Error::invalid(error.to_string()))?;
        // The text keeps these signatures apart from others that are made with the same key.
        keyed.update(b"run of allora\n");
        Ok(Self { keyed })
    }

    pub(crate) fn token(&self, ticket: &RunTicket) -> String {
        let ticket = ticket.to_string();
        let mut token = self.of(&ticket).finalize().into_bytes().to_vec();
        token.extend_from_slice(ticket.as_bytes());
        URL_SAFE_NO_PAD.encode(token)
    }

    /// `None` for a text that no gateway with this key has made.
    pub(crate) fn ticket(&self, token: &str) -> Option<RunTicket> {
        let token = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (signature, ticket) = token.split_at_checked(SIGNATURE)?;
        let ticket = str::from_utf8(ticket).ok()?;
        self.of(ticket).verify_slice(signature).ok()?;
        ticket.parse().ok()
    }

    fn of(&self, ticket: &str) -> Hmac<Sha256> {
        let mut keyed = self.keyed.clone();
        keyed.update(ticket.as_bytes());
        keyed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_by_gateways_with_its_key_and_by_no_others() {
        let (one, same, other) = (&[1; 32], &[1; 32], &[2; 32]);
        let ticket: RunTicket = "7 60000,61000 - acme/report".parse().unwrap();
        let token = Tickets::new(one).unwrap().token(&ticket);
        assert_eq!(Tickets::new(same).unwrap().ticket(&token), Some(ticket));
        assert_eq!(Tickets::new(other).unwrap().ticket(&token), None);
        assert!(Tickets::new(&[1; 31]).is_err());
    }

    #[test]
    fn a_token_that_was_changed_is_none() {
        let tickets = Tickets::new(&[1; 32]).unwrap();
        let token = tickets.token(&"7 keep - a".parse().unwrap());
        for i in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[i] = if changed[i] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(tickets.ticket(&changed), None, "{i}");
        }
        for wrong in ["", "a", "é", &token[..20]] {
            assert_eq!(tickets.ticket(wrong), None, "{wrong}");
        }
    }
}
