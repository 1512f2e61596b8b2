import { SYSTEM_USER } from '../auth/accounts.ts'
import type { UserCtx } from '../core/types.ts'

/** The server itself, which stores what its first has accepted. */
export const COPYING_USER: UserCtx = { ...SYSTEM_USER, isCopying: true }
