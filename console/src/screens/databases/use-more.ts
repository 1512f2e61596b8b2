/** Lists that grow by a page when the user asks for more. */
import { useEffect, useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'

interface ListPage<Row> {
  readonly rows: readonly Row[]
  readonly bookmark: string | null
}

interface Growing<Row> extends ListPage<Row> {
  readonly isBusy: boolean
  readonly failure: Failure | null
  load(): void
}

/** @param first the first page; another one begins the list anew. @returns null until it is there */
export function useMore<Row>(
  first: ListPage<Row> | undefined,
  next: (bookmark: string) => Promise<ListPage<Row>>,
): Growing<Row> | null {
  const [more, setMore] = useState<{ readonly of: unknown; readonly pages: readonly ListPage<Row>[] }>({
    of: undefined,
    pages: [],
  })
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  useEffect(() => {
    setFailure(null)
    setBusy(false)
  }, [first])
  if (first === undefined) return null
  const pages = more.of === first ? [first, ...more.pages] : [first]
  const bookmark = pages.at(-1)?.bookmark ?? null
  const load = () => {
    if (bookmark === null || isBusy) return
    setBusy(true)
    setFailure(null)
    next(bookmark).then(
      (page) => {
        setMore({ of: first, pages: [...pages.slice(1), page] })
        setBusy(false)
      },
      (error: unknown) => {
        setFailure(asFailure(error))
        setBusy(false)
      },
    )
  }
  return { rows: pages.flatMap(({ rows }) => rows), bookmark, isBusy, failure, load }
}
