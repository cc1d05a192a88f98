//! Requests to an object store. A request that fails for a reason that passes is repeated.

use crate::{
    address::Address,
    error::BucketError,
    limits::{
        ANSWER_MAX, CONNECT_TIME, OBJECT_MAX, OBJECTS_MAX, PIECE, PIECES_MAX, RETRIES, RETRY_AFTER,
        SAID_MAX, SIGNED_FOR, STALL_TIME,
    },
};
use rusty_s3::{
    Bucket, Credentials, S3Action as _, UrlStyle,
    actions::{CompleteMultipartUpload, CreateMultipartUpload, ListObjectsV2},
};
use std::{
    collections::BTreeMap,
    env, fmt, fs,
    io::{self, Read},
    path::PathBuf,
    thread,
};
use ureq::{
    Agent, Body,
    http::{Response, StatusCode},
    tls::{PemItem, RootCerts, TlsConfig, parse_pem},
};

/// The secret environment variables. A daemon does not pass them on to tasks.
pub const CREDENTIALS: [&str; 3] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
];
/// The XML namespace of replies.
const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
/// The region of a bucket, if the environment names none.
const REGION: &str = "us-east-1";

/// A bucket, with the credentials for requests to it.
pub struct Remote {
    address: Address,
    bucket: Bucket,
    credentials: Credentials,
    agent: Agent,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.address)
    }
}

/// The reason why a request failed.
enum Cause {
    /// The request did not arrive, or no reply came. The text gives the error.
    Way(String),
    /// The object store replied with an error.
    Answer {
        status: u16,
        code: String,
        said: String,
    },
}

impl Cause {
    /// Whether a repetition may succeed.
    fn is_passing(&self) -> bool {
        match self {
            Cause::Way(_) => true,
            Cause::Answer { status, .. } => matches!(status, 408 | 429 | 500..=599),
        }
    }
}

enum Method {
    Get { from: u64 },
    Put,
    Post,
    Delete,
}

impl Remote {
    /// Prepares requests and sends none. Credentials, region and certificates come from the
    /// environment.
    ///
    /// # Errors
    /// [`BucketError::Credentials`], [`BucketError::Certificates`], [`BucketError::Address`].
    pub fn new(address: Address) -> Result<Self, BucketError> {
        let credentials = Credentials::from_env().ok_or_else(|| BucketError::Credentials {
            bucket: address.to_string(),
        })?;
        let said = |name: &str| env::var(name).ok().filter(|it| !it.is_empty());
        let region = said("AWS_REGION").or(said("AWS_DEFAULT_REGION"));
        let region = region.unwrap_or_else(|| REGION.to_owned());
        let (endpoint, style) = match &address.endpoint {
            Some(endpoint) => (endpoint.clone(), UrlStyle::Path),
            // No certificate covers a host name with the dots of such a bucket.
            None if address.bucket.contains('.') => (amazon(&region), UrlStyle::Path),
            None => (amazon(&region), UrlStyle::VirtualHost),
        };
        let wrong = || crate::AddressError::Endpoint(endpoint.clone());
        let url = endpoint.parse().map_err(|_| wrong())?;
        let name = address.bucket.clone();
        let bucket = Bucket::new(url, style, name, region).map_err(|_| wrong())?;
        let mut tls = TlsConfig::builder();
        if endpoint.starts_with("https:") {
            tls = tls.root_certs(certificates()?);
        }
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT_TIME))
            .timeout_recv_response(Some(STALL_TIME))
            .timeout_per_read(Some(STALL_TIME))
            .timeout_per_write(Some(STALL_TIME))
            .user_agent(concat!("vm/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls.build())
            .build();
        Ok(Remote {
            address,
            bucket,
            credentials,
            agent: agent.into(),
        })
    }

    /// Address of the bucket.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Name of an object, for users.
    pub fn shown(&self, key: &str) -> String {
        format!("{}/{key}", self.address)
    }

    /// The objects whose keys, behind the prefix, begin with `start`, with their lengths in bytes.
    ///
    /// # Errors
    /// [`BucketError::Unreachable`], [`BucketError::Refused`], [`BucketError::Answer`].
    pub fn list(&self, start: &str) -> Result<BTreeMap<String, u64>, BucketError> {
        let whole = format!("{}{start}", self.address.start());
        let mut found = BTreeMap::new();
        let mut token: Option<String> = None;
        loop {
            let sign = || {
                let mut action = ListObjectsV2::new(&self.bucket, Some(&self.credentials));
                action.with_prefix(whole.clone());
                if let Some(token) = &token {
                    action.with_continuation_token(token.clone());
                }
                action.sign(SIGNED_FOR).to_string()
            };
            let step = ("list", start);
            let text = self.ask(step, &Method::Get { from: 0 }, &sign, &[])?;
            let page = ListObjectsV2::parse_response(&in_namespace(&text));
            let page = page.map_err(|_| self.no_store(step))?;
            for object in page.contents {
                let below = object.key.strip_prefix(&self.address.start());
                if let (Some(key), Some(size)) = (below, object.size) {
                    found.insert(key.to_owned(), size);
                }
            }
            if found.len() > OBJECTS_MAX {
                return Err(self.no_store(step));
            }
            match page.next_continuation_token {
                // A server that repeats its token would make this loop endless.
                Some(next) if token.as_ref() != Some(&next) => token = Some(next),
                Some(_) => return Err(self.no_store(step)),
                None => return Ok(found),
            }
        }
    }

    /// Opens an object for reading.
    ///
    /// # Errors
    /// [`BucketError::Refused`] with code `NoSuchKey` if it does not exist,
    /// [`BucketError::Unreachable`].
    pub fn open<'a>(&'a self, key: &'a str) -> Result<Object<'a>, BucketError> {
        let response = self.get(key, 0)?;
        let len = response.body().content_length();
        Ok(Object {
            remote: self,
            key,
            body: reader(response),
            at: 0,
            len,
            again: 0,
            failed: None,
        })
    }

    /// Reads a whole object of at most `max` bytes.
    ///
    /// # Errors
    /// As [`Remote::open`], and [`BucketError::Answer`] if it is longer.
    pub fn read(&self, key: &str, max: u64) -> Result<Vec<u8>, BucketError> {
        let mut object = self.open(key)?;
        let mut bytes = Vec::new();
        let read = (&mut object).take(max + 1).read_to_end(&mut bytes);
        if let Err(cause) = read {
            let said = || self.unreachable(("read", key), cause.to_string());
            return Err(object.failed.take().unwrap_or_else(said));
        }
        match bytes.len() as u64 <= max {
            true => Ok(bytes),
            false => Err(self.no_store(("read", key))),
        }
    }

    /// Writes an object of `len` bytes from `from`. After success the whole object exists. After a
    /// failure the object does not exist, or has its former content.
    ///
    /// # Errors
    /// [`BucketError::Source`] when `from` fails or ends early, [`BucketError::Unreachable`],
    /// [`BucketError::Refused`], [`BucketError::Answer`].
    pub fn write(&self, key: &str, from: &mut impl Read, len: u64) -> Result<(), BucketError> {
        let source = |cause| BucketError::Source {
            at: self.shown(key),
            cause,
        };
        if len > OBJECT_MAX {
            let cause = io::Error::other("it is longer than an object may be");
            return Err(source(cause));
        }
        let size = PIECE.max(len.div_ceil(PIECES_MAX));
        let mut piece = vec![0; len.min(size) as usize];
        from.read_exact(&mut piece).map_err(source)?;
        if len > size {
            return self.write_pieces(key, from, piece, len);
        }
        let object = self.object(key);
        let sign = || {
            let action = self.bucket.put_object(Some(&self.credentials), &object);
            action.sign(SIGNED_FOR).to_string()
        };
        self.ask(("write", key), &Method::Put, &sign, &piece)
            .map(drop)
    }

    /// Removes an object. An object that does not exist is no error.
    ///
    /// # Errors
    /// [`BucketError::Unreachable`], [`BucketError::Refused`].
    pub fn remove(&self, key: &str) -> Result<(), BucketError> {
        let object = self.object(key);
        let sign = || {
            let action = self.bucket.delete_object(Some(&self.credentials), &object);
            action.sign(SIGNED_FOR).to_string()
        };
        match self.ask(("remove", key), &Method::Delete, &sign, &[]) {
            Err(BucketError::Refused {
                status: 404, code, ..
            }) if code == "NoSuchKey" => Ok(()),
            removed => removed.map(drop),
        }
    }

    fn write_pieces(
        &self,
        key: &str,
        from: &mut impl Read,
        first: Vec<u8>,
        len: u64,
    ) -> Result<(), BucketError> {
        let step = ("write", key);
        let (object, credentials) = (self.object(key), Some(&self.credentials));
        let sign = || {
            let action = self.bucket.create_multipart_upload(credentials, &object);
            action.sign(SIGNED_FOR).to_string()
        };
        let text = self.ask(step, &Method::Post, &sign, &[])?;
        let begun = CreateMultipartUpload::parse_response(&in_namespace(&text));
        let begun = begun.map_err(|_| self.no_store(step))?;
        let id = begun.upload_id();
        let sent = self.send_pieces(key, id, from, first, len);
        if sent.is_err() {
            // Pieces of an upload that is not aborted would stay, at the user's cost.
            let sign = || {
                let action = self.bucket.abort_multipart_upload(credentials, &object, id);
                action.sign(SIGNED_FOR).to_string()
            };
            let _ = self.once(&Method::Delete, &sign(), &[]);
        }
        sent
    }

    fn send_pieces(
        &self,
        key: &str,
        id: &str,
        from: &mut impl Read,
        mut piece: Vec<u8>,
        len: u64,
    ) -> Result<(), BucketError> {
        let step = ("write", key);
        let (object, credentials) = (self.object(key), Some(&self.credentials));
        let mut tags: Vec<String> = Vec::new();
        let mut left = len;
        while left > 0 {
            let next = left.min(piece.len() as u64) as usize;
            if !tags.is_empty() {
                let read = from.read_exact(&mut piece[..next]);
                read.map_err(|cause| BucketError::Source {
                    at: self.shown(key),
                    cause,
                })?;
            }
            let number = tags.len() as u16 + 1;
            let sign = || {
                let action = self.bucket.upload_part(credentials, &object, number, id);
                action.sign(SIGNED_FOR).to_string()
            };
            let response = self.request(step, &Method::Put, &sign, &piece[..next])?;
            let tag = response.headers().get("etag");
            let tag = tag.and_then(|tag| tag.to_str().ok());
            tags.push(tag.ok_or_else(|| self.no_store(step))?.to_owned());
            left -= next as u64;
        }
        let complete = || {
            let tags = tags.iter().map(String::as_str);
            CompleteMultipartUpload::new(&self.bucket, credentials, &object, id, tags)
        };
        let sign = || complete().sign(SIGNED_FOR).to_string();
        let body = complete().body();
        let text = self.ask(step, &Method::Post, &sign, body.as_bytes())?;
        // The object store may send status 200 before it knows the result.
        match text.contains("<CompleteMultipartUploadResult") {
            true => Ok(()),
            false => Err(self.failed(step, answer(200, &text))),
        }
    }

    fn object(&self, key: &str) -> String {
        format!("{}{key}", self.address.start())
    }

    fn get(&self, key: &str, from: u64) -> Result<Response<Body>, BucketError> {
        let object = self.object(key);
        let sign = || {
            let action = self.bucket.get_object(Some(&self.credentials), &object);
            action.sign(SIGNED_FOR).to_string()
        };
        self.request(("read", key), &Method::Get { from }, &sign, &[])
    }

    /// Sends a request, and returns the body of the reply as text.
    fn ask(
        &self,
        step: (&'static str, &str),
        method: &Method,
        sign: &dyn Fn() -> String,
        body: &[u8],
    ) -> Result<String, BucketError> {
        let mut response = self.request(step, method, sign, body)?;
        let text = response.body_mut().with_config().limit(ANSWER_MAX);
        text.read_to_string()
            .map_err(|error| self.unreachable(step, way(&error)))
    }

    /// Sends a request, and repeats it after failures that pass. Each repetition is signed anew.
    fn request(
        &self,
        step: (&'static str, &str),
        method: &Method,
        sign: &dyn Fn() -> String,
        body: &[u8],
    ) -> Result<Response<Body>, BucketError> {
        let mut wait = RETRY_AFTER;
        for _ in 0..RETRIES {
            match self.once(method, &sign(), body) {
                Ok(response) => return Ok(response),
                Err(cause) if !cause.is_passing() => return Err(self.failed(step, cause)),
                Err(_) => thread::sleep(wait),
            }
            wait *= 2;
        }
        let response = self.once(method, &sign(), body);
        response.map_err(|cause| self.failed(step, cause))
    }

    fn once(&self, method: &Method, url: &str, body: &[u8]) -> Result<Response<Body>, Cause> {
        let response = match method {
            Method::Get { from: 0 } => self.agent.get(url).call(),
            Method::Get { from } => {
                let range = format!("bytes={from}-");
                self.agent.get(url).header("range", range).call()
            }
            Method::Put => self.agent.put(url).send(body),
            Method::Post => self.agent.post(url).send(body),
            Method::Delete => self.agent.delete(url).call(),
        };
        let mut response = response.map_err(|error| Cause::Way(way(&error)))?;
        let status = response.status();
        let is_good = match method {
            // A full reply would begin at the object's start again.
            Method::Get { from: 1.. } => status == StatusCode::PARTIAL_CONTENT,
            _ => status.is_success(),
        };
        if is_good {
            return Ok(response);
        }
        let text = response.body_mut().with_config().limit(ANSWER_MAX);
        let text = text.read_to_string().unwrap_or_default();
        Err(answer(status.as_u16(), &text))
    }

    fn failed(&self, (step, key): (&'static str, &str), cause: Cause) -> BucketError {
        match cause {
            Cause::Way(cause) => self.unreachable((step, key), cause),
            Cause::Answer { status, code, said } => BucketError::Refused {
                step,
                at: self.shown(key),
                status,
                code,
                said,
            },
        }
    }

    fn unreachable(&self, (step, key): (&'static str, &str), cause: String) -> BucketError {
        BucketError::Unreachable {
            step,
            at: self.shown(key),
            endpoint: self.bucket.base_url().origin().ascii_serialization(),
            cause,
        }
    }

    fn no_store(&self, (step, key): (&'static str, &str)) -> BucketError {
        let at = self.shown(key);
        BucketError::Answer { step, at }
    }
}

/// An object that is being read. After a broken connection, reading continues on a new connection.
pub struct Object<'a> {
    remote: &'a Remote,
    key: &'a str,
    body: Box<dyn Read>,
    at: u64,
    /// Length of the object, if the object store gave it. Bytes.
    len: Option<u64>,
    again: u32,
    /// The error of a failed read: the `io::Error` of [`Read`] cannot hold it.
    pub failed: Option<BucketError>,
}

impl fmt::Debug for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({})", self.remote.shown(self.key))
    }
}

impl Read for Object<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let cause = match self.body.read(buffer) {
                Ok(0) if self.len.is_some_and(|len| self.at < len) && !buffer.is_empty() => {
                    "the connection ended early".to_owned()
                }
                Ok(read) => {
                    self.at += read as u64;
                    return Ok(read);
                }
                Err(error) => error.to_string(),
            };
            let step = ("read", self.key);
            self.again += 1;
            let response = match self.again <= RETRIES {
                true => self.remote.get(self.key, self.at),
                false => Err(self.remote.unreachable(step, cause)),
            };
            match response {
                Ok(response) => self.body = reader(response),
                Err(error) => {
                    let text = error.to_string();
                    self.failed = Some(error);
                    return Err(io::Error::other(text));
                }
            }
        }
    }
}

fn reader(response: Response<Body>) -> Box<dyn Read> {
    let body = response.into_body().into_with_config();
    Box::new(body.limit(u64::MAX).reader())
}

/// A reply in XML in Amazon's namespace. Other object stores use another namespace, or none.
fn in_namespace(text: &str) -> String {
    let begins = |at: &usize| text[at + 1..].starts_with(|c: char| c.is_ascii_alphabetic());
    let tag = text.match_indices('<').map(|(at, _)| at).find(begins);
    let Some((before, after)) = tag.map(|at| text.split_at(at)) else {
        return text.to_owned();
    };
    let (tag, rest) = after.split_once('>').unwrap_or((after, ""));
    let name = tag.split_whitespace().next().unwrap_or(tag);
    format!("{before}{name} xmlns=\"{NAMESPACE}\">{rest}")
}

/// The text of a failed request. It omits the URL, which contains the signature.
fn way(error: &ureq::Error) -> String {
    match error {
        ureq::Error::BadUri(_) => "the endpoint is no address".to_owned(),
        error => error.to_string(),
    }
}

/// Reads the error in the reply of an object store.
fn answer(status: u16, text: &str) -> Cause {
    let of = |tag: &str| -> Option<String> {
        let (_, rest) = text.split_once(&format!("<{tag}>"))?;
        let (said, _) = rest.split_once("</")?;
        let said = said.chars().filter(|c| !c.is_control());
        Some(said.take(SAID_MAX).collect())
    };
    let word = StatusCode::from_u16(status).ok();
    let word = word.and_then(|it| it.canonical_reason()).unwrap_or("");
    Cause::Answer {
        status,
        code: of("Code").unwrap_or_else(|| word.to_owned()),
        said: of("Message").map_or(String::new(), |said| format!(" ({said})")),
    }
}

fn amazon(region: &str) -> String {
    format!("https://s3.{region}.amazonaws.com")
}

/// The certificates that a server's certificate has to be signed by: those in the file that the
/// environment names, else the common root certificates.
fn certificates() -> Result<RootCerts, BucketError> {
    let Some(path) = env::var_os("AWS_CA_BUNDLE").filter(|it| !it.is_empty()) else {
        return Ok(RootCerts::WebPki);
    };
    let path = PathBuf::from(path);
    let wrong = |cause: String| BucketError::Certificates {
        path: path.clone(),
        cause,
    };
    let bytes = fs::read(&path).map_err(|cause| wrong(cause.to_string()))?;
    let mut found = Vec::new();
    for item in parse_pem(&bytes) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(cause) => return Err(wrong(cause.to_string())),
        }
    }
    match found.is_empty() {
        true => Err(wrong("there is none".to_owned())),
        false => Ok(RootCerts::from(found)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read_in_any_xml_namespace() {
        let other = r#" xmlns="http://doc.s3.amazonaws.com/2006-03-01/""#;
        let amazon = format!(r#" xmlns="{NAMESPACE}""#);
        for namespace in ["", other, &amazon] {
            let text = format!(
                "<?xml version=\"1.0\"?>\n<ListBucketResult{namespace}><Name>b</Name>\
                 <IsTruncated>false</IsTruncated><Contents><Key>a/b</Key><Size>7</Size></Contents>\
                 </ListBucketResult>"
            );
            let page = ListObjectsV2::parse_response(&in_namespace(&text));
            let found = page.expect("a listing").contents;
            let found: Vec<_> = found.iter().map(|it| (&*it.key, it.size)).collect();
            assert_eq!(found, [("a/b", Some(7))]);
        }
        for text in ["", "<", "no", "<html>", "<a"] {
            ListObjectsV2::parse_response(&in_namespace(text)).expect_err(text);
        }
    }

    #[test]
    fn the_code_and_message_of_a_refusal_are_read() {
        let text = "<?xml?><Error><Code>NoSuchBucket</Code><Message>It is\n not.</Message></Error>";
        let Cause::Answer { status, code, said } = answer(404, text) else {
            panic!("no answer");
        };
        assert_eq!(
            (status, &*code, &*said),
            (404, "NoSuchBucket", " (It is not.)")
        );
        let Cause::Answer { code, said, .. } = answer(502, "<html>") else {
            panic!("no answer");
        };
        assert_eq!((&*code, &*said), ("Bad Gateway", ""));
    }
}
