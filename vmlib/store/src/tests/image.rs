//! A stream with the heads of an image.

/// An image that grows section by section.
pub struct Image(Vec<u8>);

impl Image {
    pub fn new() -> Self {
        let mut prefix = b"VMIMAGE\n".to_vec();
        prefix.resize(32, 0);
        Image(prefix)
    }

    pub fn section(mut self, payload: &[u8]) -> Self {
        let mut head = [0; 64];
        head[..4].copy_from_slice(b"SECT");
        head[32..40].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        // The checksum of the payload.
        head[40..48].copy_from_slice(&blake3::hash(payload).as_bytes()[..8]);
        self.0.extend(head);
        self.0.extend(payload);
        self
    }

    pub fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Bytes that look random.
pub fn bytes_of(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}
