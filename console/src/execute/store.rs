//! `store push`, `store pull`, `store list`: the bucket of a store.

use super::console::{Console, code_of};
use crate::{
    bucket,
    checkpoints::Folder,
    command::{AppArg, Between, StoreAction},
    event::Event,
    failure::UsageError,
};
use anyhow::Context as _;
use std::iter;
use vm_bucket::{Address, Mirror};
use vm_store::{CheckpointId, Depth};
use vm_wire::Tid;

impl Console {
    pub(super) fn store(&mut self, action: &StoreAction) -> anyhow::Result<u8> {
        match action {
            StoreAction::Help { action } => self.help(iter::once("store").chain(action.as_deref())),
            StoreAction::Push { between } => self.push(between),
            StoreAction::Pull { app, from, between } => self.pull(app, *from, between),
            StoreAction::List { between } => self.list_bucket(between),
        }
    }

    fn push(&mut self, between: &Between) -> anyhow::Result<u8> {
        let mirror = self.mirror(between)?;
        let pushed = mirror.push()?;
        self.renderer
            .show(&Event::Pushed(&pushed, mirror.address()))?;
        Ok(code_of(pushed.failed.is_empty()))
    }

    fn pull(
        &mut self,
        app: &AppArg,
        from: Option<CheckpointId>,
        between: &Between,
    ) -> anyhow::Result<u8> {
        let mirror = self.mirror(between)?;
        let app = self.app(app)?;
        let fetched = mirror.fetch(app, from, Depth::Hashes)?;
        self.renderer
            .show(&Event::Pulled(app, &fetched, mirror.address()))?;
        Ok(code_of(fetched.good.is_some()))
    }

    fn list_bucket(&mut self, between: &Between) -> anyhow::Result<u8> {
        let mirror = self.mirror(between)?;
        let rows = bucket::list(&mirror)?;
        self.renderer
            .show(&Event::InBucket(&rows, mirror.address()))?;
        Ok(code_of(rows.iter().all(|it| it.row.damaged.is_none())))
    }

    /// The application that the user means.
    pub(super) fn app(&mut self, app: &AppArg) -> anyhow::Result<Tid> {
        match app {
            AppArg::Named(app) => Ok(*app),
            AppArg::Master(tid) => self.resolve(tid),
        }
    }

    fn mirror(&mut self, between: &Between) -> anyhow::Result<Mirror> {
        let root = match &between.store {
            Some(root) => root.clone(),
            None => Folder::of(&self.conf()?).root,
        };
        let endpoint = between.endpoint.as_deref();
        let bucket = between.bucket.as_deref();
        let address = bucket.map(|url| Address::parse(url, endpoint)).transpose();
        let address = address.map_err(|error| UsageError(error.to_string()))?;
        bucket::mirror(&root, address)?.with_context(|| {
            format!(
                "the store {} has no bucket: name one with --bucket, or for its daemon with vmd \
                 --store-bucket",
                root.display()
            )
        })
    }
}
