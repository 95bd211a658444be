//! A machine without memory.

use std::convert::Infallible;
use std::marker::PhantomData;

use super::machine::{DeviceElement, LaunchShape, Machine, RecordedLaunch};

/// A machine whose arrays hold nothing and whose kernels do nothing: what runs on it shows how much memory it takes on
/// others. Numbers that are read from it are 0.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountingMachine;

/// Array of a [`CountingMachine`] machine.
#[derive(Debug)]
pub struct NoArray<T>(PhantomData<T>);

impl Machine for CountingMachine {
    type Error = Infallible;
    type Array<T: DeviceElement> = NoArray<T>;
    type Event = ();
    type Graph = ();

    fn upload_array<T: DeviceElement>(&self, _: &[T]) -> Result<NoArray<T>, Infallible> {
        Ok(NoArray(PhantomData))
    }

    fn allocate_array<T: DeviceElement>(&self, _: usize) -> Result<NoArray<T>, Infallible> {
        Ok(NoArray(PhantomData))
    }

    fn allocate_zeros<T: DeviceElement>(&self, _: usize) -> Result<NoArray<T>, Infallible> {
        Ok(NoArray(PhantomData))
    }

    fn download_array<T: DeviceElement>(
        &self,
        _: &NoArray<T>,
        n: usize,
    ) -> Result<Vec<T>, Infallible> {
        Ok(vec![T::default(); n])
    }

    fn overwrite_array<T: DeviceElement>(
        &self,
        _: &mut NoArray<T>,
        _: &[T],
    ) -> Result<(), Infallible> {
        Ok(())
    }

    fn array_address<T: DeviceElement>(&self, _: &NoArray<T>) -> u64 {
        0
    }

    #[allow(unsafe_code)]
    unsafe fn launch_kernel(
        &self,
        _: &'static str,
        _: LaunchShape,
        _: &[u64],
    ) -> Result<(), Infallible> {
        Ok(())
    }

    #[allow(unsafe_code)]
    unsafe fn create_graph(&self, _: &[RecordedLaunch]) -> Result<(), Infallible> {
        Ok(())
    }

    #[allow(unsafe_code)]
    unsafe fn replay_graph(&self, (): &()) -> Result<(), Infallible> {
        Ok(())
    }

    fn record_event(&self) -> Result<(), Infallible> {
        Ok(())
    }

    fn is_reached(&self, (): &()) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn stream_handle(&self) -> Result<u64, Infallible> {
        Ok(0)
    }

    fn elapsed_millis(&self, (): &(), (): &()) -> Result<f32, Infallible> {
        Ok(0.0)
    }
}
