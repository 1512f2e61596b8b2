import { resolve } from 'node:path'

/**
 * @param given with --data
 * @returns the absolute path of the data folder
 */
export function dataFolder(given: string | undefined, env: NodeJS.ProcessEnv): string {
  return resolve(given ?? (env.SETTEE_DATA?.trim() || 'data'))
}
