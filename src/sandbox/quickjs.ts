/**
 * An instance of QuickJS of its own for each function. Its own `setMemoryLimit` counts allocations and not their
 * sizes in WebAssembly (the C library there does not tell them), so the bound is the WebAssembly memory's: one that
 * cannot grow any more. An instance costs about 0.3 MB and 3 ms, nothing in it is shared with another, and it goes
 * with its memory, however broken it is.
 */
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import {
  newQuickJSWASMModuleFromVariant,
  newVariant,
  type QuickJSContext,
  type QuickJSSyncVariant,
  RELEASE_SYNC,
} from 'quickjs-emscripten'

const PAGE = 65_536
/** Pages that an instance starts with, and needs. */
const INITIAL_PAGES = 256

/** Memory is exhausted where QuickJS cannot say so itself. */
export class OutOfMemory extends Error {}

export interface Instance {
  readonly context: QuickJSContext
  readonly memory: BoundedMemory
}

/** A memory that notes when it would not grow any more. */
export class BoundedMemory extends WebAssembly.Memory {
  /** Whether the last attempt to let it grow, since this was set to false, was in vain. */
  isExhausted = false

  override grow(pages: number): number {
    this.isExhausted = true
    const before = super.grow(pages)
    this.isExhausted = false
    return before
  }
}

let compiled: Promise<WebAssembly.Module> | undefined

/** QuickJS compiled, once for all instances of a thread. */
function compileQuickJS(): Promise<WebAssembly.Module> {
  compiled ??= readQuickJS()
  return compiled
}

async function readQuickJS(): Promise<WebAssembly.Module> {
  const own = createRequire(import.meta.url)
  // The package that holds the file is one of quickjs-emscripten's, and found from there.
  const path = createRequire(own.resolve('quickjs-emscripten')).resolve(
    '@jitl/quickjs-wasmfile-release-sync/wasm',
  )
  return WebAssembly.compile(await readFile(path))
}

/**
 * @param maximum bytes of memory, at least those it starts with (16 MiB)
 * @param stack bytes that its calls may nest
 * @param shouldStop asked now and then while a function runs
 */
export async function newInstance(
  maximum: number,
  stack: number,
  shouldStop: () => boolean,
): Promise<Instance> {
  const pages = Math.max(INITIAL_PAGES, Math.floor(maximum / PAGE))
  const memory = new BoundedMemory({ initial: INITIAL_PAGES, maximum: pages })
  const wasmModule = await compileQuickJS()
  const variant = newVariant(RELEASE_SYNC, { wasmModule, wasmMemory: memory })
  const module = await newQuickJSWASMModuleFromVariant(adapted(variant, memory))
  const runtime = module.newRuntime({ interruptHandler: shouldStop, maxStackSizeBytes: stack })
  return { context: runtime.newContext(), memory }
}

/**
 * quickjs-emscripten writes to wherever `malloc` points, also when that is nowhere; and Emscripten's own loops that
 * write a text into the memory take a fifth of a call's time.
 */
function adapted(variant: QuickJSSyncVariant, memory: BoundedMemory): QuickJSSyncVariant {
  const importModuleLoader: QuickJSSyncVariant['importModuleLoader'] = async () => {
    const load = loaderIn(await variant.importModuleLoader())
    return async (options) => {
      const module = await load(options)
      const malloc = module._malloc
      module._malloc = (size) => {
        const pointer = malloc(size)
        if (pointer === 0) throw new OutOfMemory()
        return pointer
      }
      module.lengthBytesUTF8 = (text) => Buffer.byteLength(text)
      module.stringToUTF8 = (text, pointer, size = 0) => writeText(memory, text, pointer, size)
      return module
    }
  }
  return { ...variant, importModuleLoader }
}

const encoder = new TextEncoder()

/** Writes a text and the 0 that ends it. The memory's bytes are asked for anew, since growing replaces them. */
function writeText(memory: BoundedMemory, text: string, pointer: number, size: number): void {
  const room = new Uint8Array(memory.buffer, pointer, size)
  const { written } = encoder.encodeInto(text, room.subarray(0, -1))
  room[written] = 0
}

type Imported = Awaited<ReturnType<QuickJSSyncVariant['importModuleLoader']>>

/** Packages of different kinds wrap what they export once or twice. */
function loaderIn(imported: Imported): Extract<Imported, (...given: never) => unknown> {
  if (typeof imported === 'function') return imported
  return loaderIn(imported.default)
}
