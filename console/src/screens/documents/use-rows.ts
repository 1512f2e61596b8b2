/** The rows of a list of documents, as a component uses them. */
import { useEffect, useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import {
  countIds,
  FixedRows,
  IdPages,
  type IdRow,
  type ListKind,
  type RowSource,
  readConflicts,
  readLocals,
} from './id-rows.ts'

interface Rows {
  /** null until the number of rows is known. */
  readonly source: RowSource | null
  readonly failure: Failure | null
  readonly isLoading: boolean
  readonly isCut: boolean
  reload(): void
  /** null where there is nothing more to search. */
  readonly searchOn: (() => void) | null
}

/** The rows of a list; each arrival of rows renders anew. */
export function useRows(database: string, kind: ListKind, prefix: string): Rows {
  const [, render] = useState(0)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [found, setFound] = useState<{ readonly rows: readonly IdRow[]; readonly bookmark: string | null }>()
  const address = JSON.stringify([database, kind, prefix])
  const {
    data,
    failure: notCounted,
    isLoading,
    reload,
  } = useLoad<Read>((signal) => readList(database, kind, prefix, signal), address)
  const [source, setSource] = useState<{ readonly address: string; readonly rows: RowSource } | null>(null)
  useEffect(() => {
    if (data === undefined) return undefined
    setFailure(null)
    setFound(undefined)
    const onChange = (error: unknown) => {
      setFailure(error === null ? null : asFailure(error))
      render((count) => count + 1)
    }
    const rows =
      'count' in data
        ? new IdPages({ database, kind: data.kind, prefix, count: data.count }, onChange)
        : new FixedRows(data.rows)
    setSource({ address, rows })
    return () => rows.close()
  }, [data])
  const bookmark = found === undefined ? data && 'bookmark' in data && data.bookmark : found.bookmark
  const searchOn = () => {
    if (!bookmark || data === undefined || 'count' in data) return
    const before = found?.rows ?? data.rows
    readConflicts(database, bookmark, new AbortController().signal).then(
      (next) => {
        const rows = [...before, ...next.rows]
        setFound({ rows, bookmark: next.bookmark })
        setSource({ address, rows: new FixedRows(rows) })
      },
      (error: unknown) => setFailure(asFailure(error)),
    )
  }
  return {
    source: source?.address === address ? source.rows : null,
    failure: failure ?? notCounted,
    isLoading,
    isCut: data !== undefined && 'isCut' in data && data.isCut,
    reload,
    searchOn: bookmark ? searchOn : null,
  }
}

type Read =
  | { readonly count: number; readonly kind: 'all' | 'design' }
  | { readonly rows: readonly IdRow[]; readonly isCut: boolean }
  | { readonly rows: readonly IdRow[]; readonly bookmark: string | null }

async function readList(
  database: string,
  kind: ListKind,
  prefix: string,
  signal: AbortSignal,
): Promise<Read> {
  if (kind === 'local') return readLocals(database, prefix, signal)
  if (kind === 'conflicts') return readConflicts(database, null, signal)
  return { kind, count: await countIds(database, kind, prefix, signal) }
}
