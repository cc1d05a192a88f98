//! The address of a bucket.

use crate::limits::ADDRESS_MAX;
use std::fmt;

/// Address of a bucket: its object store, its name, and a prefix of the keys. It holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Name of the bucket.
    pub bucket: String,
    /// Prefix of all keys, up to a slash; without slashes at its ends. It may be empty.
    pub prefix: String,
    /// URL of the object store, as `https://objects.example.org:9000`. `None`: Amazon S3.
    pub endpoint: Option<String>,
}

/// The reason why a text is no address of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The address of the bucket is malformed.
    #[error(
        "'{0}' is no bucket: write s3://BUCKET or s3://BUCKET/PREFIX, of letters, digits and -_.!*'() \
         (and / in the prefix)"
    )]
    Bucket(String),
    /// The URL of the endpoint is malformed.
    #[error("'{0}' is no endpoint: write http://HOST:PORT or https://HOST:PORT, with nothing else")]
    Endpoint(String),
    /// The endpoint has a name or password before its host.
    #[error(
        "an endpoint has no credentials in it: give them in the environment (AWS_ACCESS_KEY_ID, \
         AWS_SECRET_ACCESS_KEY)"
    )]
    Credentials,
}

impl Address {
    /// Reads a bucket URL, `s3://BUCKET/PREFIX`, and the URL of its endpoint.
    ///
    /// # Errors
    /// [`AddressError`]; its text gives the right form.
    pub fn parse(url: &str, endpoint: Option<&str>) -> Result<Self, AddressError> {
        let wrong = || AddressError::Bucket(url.chars().take(ADDRESS_MAX).collect());
        let path = url.strip_prefix("s3://").ok_or_else(wrong)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.!*'()".contains(c);
        // A client would resolve `.` and `..` as in a path.
        let names = |text: &str| {
            let mut names = text.split('/');
            names.all(|it| !matches!(it, "" | "." | "..") && it.chars().all(fits))
        };
        let is_good = names(bucket) && (prefix.is_empty() || names(prefix));
        if !is_good || url.len() > ADDRESS_MAX {
            return Err(wrong());
        }
        Ok(Address {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            endpoint: endpoint.map(parse_endpoint).transpose()?,
        })
    }

    /// The first characters of all keys: empty, or the prefix and a slash.
    pub fn start(&self) -> String {
        match self.prefix.is_empty() {
            true => String::new(),
            false => format!("{}/", self.prefix),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        match self.prefix.is_empty() {
            true => Ok(()),
            false => write!(f, "/{}", self.prefix),
        }
    }
}

fn parse_endpoint(text: &str) -> Result<String, AddressError> {
    let host = text
        .strip_prefix("https://")
        .or(text.strip_prefix("http://"))
        .unwrap_or_default();
    // The error does not repeat the text: a secret may stand before the `@`.
    if host.contains('@') {
        return Err(AddressError::Credentials);
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._:[]/".contains(c);
    match !host.is_empty() && host.chars().all(fits) && text.len() <= ADDRESS_MAX {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err(AddressError::Endpoint(
            text.chars().take(ADDRESS_MAX).collect(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_as_it_is_written() {
        for (text, bucket, prefix, start) in [
            ("s3://b-1.x", "b-1.x", "", ""),
            ("s3://b/of/me", "b", "of/me", "of/me/"),
        ] {
            let address = Address::parse(text, None).expect("an address");
            assert_eq!(address.to_string(), text);
            assert_eq!((&*address.bucket, &*address.prefix), (bucket, prefix));
            assert_eq!(address.start(), start);
        }
        let address = Address::parse("s3://b/p/", Some("http://[::1]:9000/"));
        let address = address.expect("slashes at the end are no harm");
        assert_eq!(address.prefix, "p");
        assert_eq!(address.endpoint.as_deref(), Some("http://[::1]:9000"));
    }

    #[test]
    fn a_text_that_is_no_address_is_refused_and_its_secrets_are_not_repeated() {
        for text in [
            "",
            "b/p",
            "s3://",
            "s3:///p",
            "s3://b//p",
            "s3://b/../p",
            "s3://b/p?x",
            "s3://..",
            "s3://b/a b",
        ] {
            let error = Address::parse(text, None).expect_err(text);
            assert!(error.to_string().contains("s3://BUCKET"), "{error}");
        }
        for endpoint in ["", "host:9000", "ftp://host", "http://", "http://h/?q"] {
            let error = Address::parse("s3://b", Some(endpoint)).expect_err(endpoint);
            assert!(error.to_string().contains("http://HOST:PORT"), "{error}");
        }
        let error = Address::parse("s3://b", Some("https://key:word@host")).expect_err("a secret");
        assert!(!error.to_string().contains("word"), "{error}");
    }
}
