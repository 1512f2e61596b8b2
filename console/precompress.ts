import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { brotliCompress, constants, gzip } from 'node:zlib'
import type { Plugin } from 'vite'

const TEXT = /\.(?:html|js|css|svg|md)$/
/** In bytes; smaller files fit into one packet as they are. */
const MIN_BYTES = 1024

const asGzip = promisify<Uint8Array, object, Buffer>(gzip)
const asBrotli = promisify<Uint8Array, object, Buffer>(brotliCompress)

/** Writes a `.gz` and a `.br` beside each text file of the build, so that the server compresses nothing. */
export function precompress(): Plugin {
  return {
    name: 'precompress',
    apply: 'build',
    async writeBundle({ dir }) {
      if (dir === undefined) throw new Error('The build has no folder.')
      const files = await readdir(dir, { recursive: true })
      await Promise.all(files.filter((file) => TEXT.test(file)).map((file) => compress(join(dir, file))))
    },
  }
}

async function compress(file: string): Promise<void> {
  const bytes = await readFile(file)
  if (bytes.length < MIN_BYTES) return
  const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY } }
  await Promise.all([
    asGzip(bytes, { level: constants.Z_BEST_COMPRESSION }).then((data) => writeFile(`${file}.gz`, data)),
    asBrotli(bytes, quality).then((data) => writeFile(`${file}.br`, data)),
  ])
}
