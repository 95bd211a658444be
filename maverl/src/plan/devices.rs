//! Devices in numbers, by the data sheets of their vendors.

const GB: f64 = 1e9;
const GIB: u64 = 1 << 30;
const TERA: f64 = 1e12;

/// Ranks of a machine with GPUs.
const LOCAL: u64 = 8;
/// Bytes that a rank without a GPU sends in a second within its machine, and to others.
const CPU: [f64; 2] = [4.0 * GB, 1.25 * GB];

/// A device in numbers, by its vendor's data sheet.
#[derive(Debug, PartialEq)]
pub struct DeviceModel {
    /// Name on the command line.
    pub name: &'static str,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes that its memory transfers in a second.
    pub memory_bandwidth: f64,
    /// Bytes that a device sends to the others of its machine in a second.
    pub link: f64,
    /// Bytes that the network of the vendor's machine transfers in a second for each device.
    pub network: f64,
    /// Floating-point operations of dense products in bf16 in a second.
    pub products: f64,
}

/// Known devices.
pub const DEVICES: [DeviceModel; 8] = [
    DeviceModel::of("a100-40gb", 40, [1555.0, 300.0, 25.0], 312.0),
    DeviceModel::of("a100-80gb", 80, [2039.0, 300.0, 25.0], 312.0),
    DeviceModel::of("h100-80gb", 80, [3350.0, 450.0, 50.0], 989.0),
    DeviceModel::of("h200-141gb", 141, [4800.0, 450.0, 50.0], 989.0),
    DeviceModel::of("b200-180gb", 180, [7700.0, 900.0, 50.0], 2250.0),
    DeviceModel::of("l40s-48gb", 48, [864.0, 32.0, 12.5], 362.0),
    DeviceModel::of("rtx4090-24gb", 24, [1008.0, 32.0, 1.25], 165.0),
    DeviceModel::of("rtx5090-32gb", 32, [1792.0, 64.0, 1.25], 209.0),
];

impl DeviceModel {
    /// Returns a device with so many GiB of memory, gigabytes a second of its memory, link and network, and 1e12 operations.
    pub(super) const fn of(name: &'static str, gib: u64, bandwidth: [f64; 3], tera: f64) -> Self {
        let [memory, link, network] = bandwidth;
        Self {
            name,
            memory: gib * GIB,
            memory_bandwidth: memory * GB,
            link: link * GB,
            network: network * GB,
            products: tera * TERA,
        }
    }

    /// Returns the device of a name.
    pub fn find(name: &str) -> Option<&'static Self> {
        DEVICES.iter().find(|device| device.name == name)
    }
}

/// Ranks that a plan is computed for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Placement {
    /// Number of ranks.
    pub(super) ranks: u64,
    /// Ranks of a machine.
    pub(super) local: u64,
    /// Device of each rank; `None` for the CPU.
    pub(super) device: Option<&'static DeviceModel>,
    /// Bytes that a rank sends in a second within its machine, and to others.
    pub(super) bandwidth: [f64; 2],
}

impl Placement {
    /// Creates ranks with a device each, or on CPUs: 8 a machine with devices, and one without.
    pub fn new(ranks: u64, device: Option<&'static DeviceModel>) -> Self {
        let ranks = ranks.max(1);
        let bandwidth = device.map_or(CPU, |device| [device.link, device.network]);
        let local = if device.is_some() { LOCAL.min(ranks) } else { 1 };
        Self { ranks, local, device, bandwidth }
    }

    /// Sets the number of ranks of a machine.
    #[must_use]
    pub fn with_local(self, ranks: u64) -> Self {
        Self { local: ranks.clamp(1, self.ranks), ..self }
    }

    /// Sets the bytes that a rank sends to other machines in a second.
    #[must_use]
    pub fn with_bandwidth(self, bytes: f64) -> Self {
        Self { bandwidth: [self.bandwidth[0], bytes], ..self }
    }
}
