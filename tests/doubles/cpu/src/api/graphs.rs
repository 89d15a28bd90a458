//! Graphs that captures made. Nodes are not added one by one here.

use std::ffi::{c_char, c_ulonglong, c_void};
use std::sync::Arc;

use crate::device;
use crate::graph::{EXECS, GRAPHS, GraphExec};
use crate::status::CAPTURE_UNSUPPORTED;
use crate::stream::STREAMS;

use super::{hip, unsupported};

type Handle = *mut c_void;

hip! {
    fn hipGraphInstantiate(
        to: *mut Handle, graph: Handle, _node: *mut Handle, _log: *mut c_char, _size: usize,
    ) {
        device::get(device::current())?.check()?;
        to.write(EXECS.add(Arc::new(GraphExec::new(&*GRAPHS.get(graph)?))));
        Ok(())
    }
    fn hipGraphInstantiateWithFlags(to: *mut Handle, graph: Handle, _flags: c_ulonglong) {
        device::get(device::current())?.check()?;
        to.write(EXECS.add(Arc::new(GraphExec::new(&*GRAPHS.get(graph)?))));
        Ok(())
    }
    fn hipGraphUpload(exec: Handle, stream: Handle) {
        EXECS.get(exec)?;
        let stream = STREAMS.get(stream)?;
        device::get(stream.device)?.check()
    }
    fn hipGraphLaunch(exec: Handle, stream: Handle) {
        let stream = STREAMS.get(stream)?;
        device::get(stream.device)?.check()?;
        if stream.capture().is_some() { return Err(CAPTURE_UNSUPPORTED) }
        EXECS.get(exec)?.launch(&stream)
    }
    fn hipGraphExecDestroy(exec: Handle) { EXECS.remove(exec).map(|_| ()) }
    fn hipGraphDestroy(graph: Handle) { GRAPHS.remove(graph).map(|_| ()) }
    fn hipGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) {
        let graph = GRAPHS.get(graph)?;
        if nodes.is_null() {
            count.write(graph.nodes.len());
            return Ok(());
        }
        Err(crate::status::NOT_SUPPORTED)
    }
}

unsupported! {
    hipGraphCreate hipGraphAddKernelNode hipGraphAddMemcpyNode hipGraphAddMemcpyNode1D hipGraphAddMemsetNode
    hipGraphAddHostNode hipGraphAddEmptyNode hipGraphAddEventRecordNode hipGraphAddEventWaitNode
    hipGraphAddChildGraphNode hipGraphAddDependencies hipGraphExecUpdate hipGraphExecKernelNodeSetParams
    hipGraphExecMemcpyNodeSetParams1D hipGraphDebugDotPrint hipGraphKernelNodeSetAttribute
}
