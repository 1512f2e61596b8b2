/** The thread that copies databases, as seen from within: one piece of work after the other. */
import { setPriority } from 'node:os'
import { platform } from 'node:process'
import type { MessagePort } from 'node:worker_threads'
import type { StorageEngine } from '../storage/storage-engine.ts'
import { checkCatalog, copyDatabase, takeUnwritten } from './copy-job.ts'
import { type CopyReply, type CopyRequest, DamagedCopy } from './copy-wire.ts'
import { packError } from './wire.ts'

/** As nice(1) counts. */
const NICENESS = 10

/** Serves a port until the thread is ended from without. */
export function serveCopies(port: MessagePort, engine: StorageEngine): void {
  yieldToOthers()
  const tell = (reply: CopyReply) => port.postMessage(reply)
  let before = Promise.resolve()
  port.on('message', (request: CopyRequest) => {
    before = before.then(() => answer(request, engine, tell))
  })
}

async function answer(
  request: CopyRequest,
  engine: StorageEngine,
  tell: (reply: CopyReply) => void,
): Promise<void> {
  const { call } = request
  try {
    tell({ call, type: 'answer', value: await work(request, engine, tell) })
  } catch (error) {
    if (error instanceof DamagedCopy) tell({ call, type: 'damaged', reason: error.message })
    else tell({ call, type: 'failed', error: packError(error) })
  }
}

async function work(
  request: CopyRequest,
  engine: StorageEngine,
  tell: (reply: CopyReply) => void,
): Promise<unknown> {
  const { call } = request
  if (request.type === 'catalog') return checkCatalog(engine, request.path, request.serverUuid)
  if (request.type === 'same') return takeUnwritten(engine, request.job)
  return copyDatabase(engine, request.job, (progress) => tell({ call, type: 'progress', progress }))
}

/** On Linux a thread has a priority of its own; elsewhere this would be the whole server's. */
function yieldToOthers(): void {
  if (platform !== 'linux') return
  try {
    setPriority(0, NICENESS)
  } catch {
    // It rests between its pieces of work in any case.
  }
}
