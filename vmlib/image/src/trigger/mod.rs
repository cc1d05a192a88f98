//! Saves a program that does not call this library. A signal requests the image: from another
//! process (`request`), or, in a program with certain environment variables, from any sender
//! (`handler`, `image_path`).

// In the process that is saved.
pub mod handler;
pub mod image_path;
pub mod requester;

// Both ends of a request.
pub mod packet;
pub mod process_status;
pub mod request;
pub mod request_error;
