/** The types of WebAssembly that function-context.ts uses; TypeScript has them only in its library for browsers. */
declare namespace WebAssembly {
  interface Module {
    readonly [Symbol.toStringTag]: string
  }
  class Memory {
    /** @param size in pages of 64 KiB */
    constructor(size: { readonly initial: number; readonly maximum: number })
    readonly buffer: ArrayBuffer
    /** @throws RangeError when it would be larger than its maximum */
    grow(pages: number): number
  }
  function compile(bytes: Uint8Array): Promise<Module>
}
