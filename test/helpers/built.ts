/**
 * The modules for other processes and threads: from dist/ under `npm test`, which builds it and sets a variable,
 * otherwise from the sources.
 */
import { pathToFileURL } from 'node:url'
import { IS_BUILT, ROOT } from '../cli/child.ts'

/** @param path below src, without the suffix */
export function moduleUrl(path: string): string {
  return new URL(IS_BUILT ? `dist/${path}.js` : `src/${path}.ts`, pathToFileURL(ROOT)).href
}
