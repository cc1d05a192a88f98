//! Faults for tests, by name, in builds with assertions: `VM_FAULT=link-cut` makes SIGUSR1 destroy
//! all connections to other daemons, with what is in them.

/// Environment variable that names the fault.
const ENV_FAULT: &str = "VM_FAULT";

/// Whether the fault of that name is asked for.
pub fn is_on(name: &str) -> bool {
    cfg!(debug_assertions) && std::env::var(ENV_FAULT).is_ok_and(|fault| fault == name)
}
