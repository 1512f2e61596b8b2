/**
 * Where another process or thread finds settee's modules: in dist/, which `npm test` has just built and says so, or, when
 * a test is run by itself, in the sources.
 */
import { pathToFileURL } from 'node:url'
import { ROOT } from '../cli/child.ts'

const isBuilt = process.env.SETTEE_TEST_BUILT === 'true'

/** @param path below src, without its ending */
export function moduleUrl(path: string): string {
  return new URL(isBuilt ? `dist/${path}.js` : `src/${path}.ts`, pathToFileURL(ROOT)).href
}
