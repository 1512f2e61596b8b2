/**
 * Where another process or thread finds the house's modules: in dist/, which `npm test` has built just now and says so,
 * or, when a test is run by itself, in the sources, for which it needs the loader.
 */
import { pathToFileURL } from 'node:url'
import { ROOT } from '../cli/child.ts'

const isBuilt = process.env.SETTEE_TEST_BUILT === 'true'

/** Flags of Node under which {@link moduleUrl} can be imported. */
export const LOADERS: readonly string[] = isBuilt ? [] : ['--import=tsx']

/** @param path below src, without its ending */
export function moduleUrl(path: string): string {
  return new URL(isBuilt ? `dist/${path}.js` : `src/${path}.ts`, pathToFileURL(ROOT)).href
}
