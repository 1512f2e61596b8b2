import type { DatabaseStore } from '../storage/engine.ts'

/** The part of a store that reading documents takes; where not everybody may see everything, it shows less. */
export type DocumentReader = Pick<DatabaseStore, 'view' | 'readDocs' | 'readLocals' | 'readBlob' | 'pinBlob'>
