//! A machine without memory.

use std::convert::Infallible;
use std::marker::PhantomData;

use super::machine::{Element, Launch, Machine, Recorded};

/// A machine whose arrays hold nothing and whose kernels do nothing: what runs on it shows how much memory it takes on
/// others. Numbers that are read from it are 0.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted;

/// Array of a [`Counted`] machine.
#[derive(Debug)]
pub struct NoArray<T>(PhantomData<T>);

impl Machine for Counted {
    type Error = Infallible;
    type Array<T: Element> = NoArray<T>;
    type Event = ();
    type Graph = ();

    fn upload<T: Element>(&self, _: &[T]) -> Result<NoArray<T>, Infallible> {
        Ok(NoArray(PhantomData))
    }

    fn space<T: Element>(&self, _: usize) -> Result<NoArray<T>, Infallible> {
        Ok(NoArray(PhantomData))
    }

    fn zeros<T: Element>(&self, _: usize) -> Result<NoArray<T>, Infallible> {
        Ok(NoArray(PhantomData))
    }

    fn download<T: Element>(&self, _: &NoArray<T>, n: usize) -> Result<Vec<T>, Infallible> {
        Ok(vec![T::default(); n])
    }

    fn write<T: Element>(&self, _: &mut NoArray<T>, _: &[T]) -> Result<(), Infallible> {
        Ok(())
    }

    fn address<T: Element>(&self, _: &NoArray<T>) -> u64 {
        0
    }

    #[allow(unsafe_code)]
    unsafe fn launch(&self, _: &'static str, _: Launch, _: &[u64]) -> Result<(), Infallible> {
        Ok(())
    }

    #[allow(unsafe_code)]
    unsafe fn graph(&self, _: &[Recorded]) -> Result<(), Infallible> {
        Ok(())
    }

    #[allow(unsafe_code)]
    unsafe fn replay(&self, (): &()) -> Result<(), Infallible> {
        Ok(())
    }

    fn record(&self) -> Result<(), Infallible> {
        Ok(())
    }

    fn reached(&self, (): &()) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn stream(&self) -> Result<u64, Infallible> {
        Ok(0)
    }

    fn elapsed(&self, (): &(), (): &()) -> Result<f32, Infallible> {
        Ok(0.0)
    }
}
