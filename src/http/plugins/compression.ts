import { constants } from 'node:zlib'
import compress from '@fastify/compress'
import fp from 'fastify-plugin'

/** Shorter answers are not compressed. */
export const COMPRESSED_BYTES = 1024

/**
 * Compresses whole JSON answers of a kilobyte and more for clients that ask for it, fast rather than well: most
 * of them are read over a home network. Streams do their own (json-stream.ts), line by line where it matters.
 */
export const compression = fp(
  async (app) => {
    await app.register(compress, {
      globalDecompression: false,
      threshold: COMPRESSED_BYTES,
      encodings: ['br', 'gzip'],
      brotliOptions: { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } },
      zlibOptions: { level: constants.Z_BEST_SPEED },
      customTypes: /^application\/json$/,
    })
  },
  { name: 'compression' },
)
