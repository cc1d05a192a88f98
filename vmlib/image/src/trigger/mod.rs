//! Saves a program that contains no call of this library: a signal asks for the image, from
//! another process (`request`) or by environment variables (`handler`, `image_path`).

// In the process that is asked.
pub mod handler;
pub mod image_path;
pub mod requester;

// Both ends of a request.
pub mod packet;
pub mod process_status;
pub mod request;
pub mod request_error;
