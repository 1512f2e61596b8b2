import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import type { Closing } from './closing.ts'

/** What every part of a server stands on. */
export interface Ground {
  readonly dataDir: string
  readonly env: NodeJS.ProcessEnv
  readonly config: Config
  readonly logger: Logger
  readonly closing: Closing
}
