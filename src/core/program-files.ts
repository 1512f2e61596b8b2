/**
 * Where the program's own files lie: those that are started as threads or processes, and those that are read. In src/ and
 * in dist/ they have the same paths. This module itself is part of a file in dist/chunks/, so no other module may find a
 * file by its own place (scripts/bundle.mjs).
 */
import { extname } from 'node:path'

/** src/ or dist/: this module lies one folder below it in both. */
const FOLDER = new URL('../', import.meta.url)
/** `.ts` in src/, `.js` in dist/. */
const SUFFIX = extname(import.meta.url)

/** @param path from src/ */
export function programFile(path: string): URL {
  return new URL(path, FOLDER)
}

/** @param path of a module, from src/ and without the suffix. scripts/bundle.mjs lists those that can be started */
export function programModule(path: string): URL {
  return new URL(`${path}${SUFFIX}`, FOLDER)
}
