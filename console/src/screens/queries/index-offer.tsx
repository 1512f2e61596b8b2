/** What a query without an index costs, and the index that would help it, with one click. */
import { useState } from 'preact/hooks'
import { ask, pathOf } from '../../api/client.ts'
import { asFailure, type Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { Button } from '../../parts/button.tsx'
import { ErrorNotice, Notice } from '../../parts/notice.tsx'
import { say } from '../../parts/toast.tsx'
import { en } from '../../strings/en.ts'
import { type Explanation, suggestedFields } from './explain-words.ts'
import { explainBody, memberOf, sortFields } from './find-body.ts'

interface IndexOfferProps {
  readonly database: string
  /** The body of the query. */
  readonly text: string
  readonly mayChange: boolean
  onMade(): void
}

export function IndexOffer({ database, text, mayChange, onMade }: IndexOfferProps) {
  const { data } = useLoad((signal) => explain(database, text, signal), text)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const fields = data === undefined ? [] : suggestedFields(data, sortFields(text))
  const make = () => {
    setBusy(true)
    setFailure(null)
    makeIndex(database, { fields, isPartitioned: isOfPartition(text) }).then(
      () => {
        setBusy(false)
        say(en.queries.offer.made(fields.join(', ')))
        onMade()
      },
      (error: unknown) => {
        setFailure(asFailure(error))
        setBusy(false)
      },
    )
  }
  const actions = fields.length > 0 && mayChange && (
    <Button isSmall icon="plus" onClick={make} isBusy={isBusy}>
      {en.queries.offer.make(fields.join(', '))}
    </Button>
  )
  return (
    <>
      <Notice tone="warn" title={en.queries.offer.title} {...(actions && { actions })}>
        <p>
          {en.queries.offer.lead} {data !== undefined && fields.length === 0 && en.queries.offer.noField}
          {fields.length > 0 && !mayChange && en.queries.offer.askAdmin(fields.join(', '))}
        </p>
      </Notice>
      {failure !== null && <ErrorNotice failure={failure} title={en.queries.offer.failed} />}
    </>
  )
}

async function explain(database: string, text: string, signal: AbortSignal): Promise<Explanation> {
  const headers = { 'Content-Type': 'application/json' }
  const call = { method: 'POST', body: explainBody(text), headers, signal }
  return ask<Explanation>(pathOf(database, '_explain'), call)
}

/** Whether a query asks one partition, which only an index of partitions can answer. */
function isOfPartition(text: string): boolean {
  const partition = memberOf(text, 'partition')
  return typeof partition === 'string' && partition !== ''
}

interface NewIndex {
  readonly fields: readonly string[]
  /** Of a partitioned database: whether it serves single partitions; null: the database is not partitioned. */
  readonly isPartitioned: boolean | null
  readonly name?: string
  /** Only documents that match it are in the index; absent: all. */
  readonly filter?: unknown
}

/** Makes an index. @throws Failure */
export async function makeIndex(database: string, index: NewIndex): Promise<{ readonly result: string }> {
  const { fields, isPartitioned, name, filter } = index
  const info =
    isPartitioned === null ? null : await ask<{ props?: { partitioned?: boolean } }>(pathOf(database))
  return ask(pathOf(database, '_index'), {
    json: {
      index: { fields, ...(filter !== undefined && { partial_filter_selector: filter }) },
      type: 'json',
      ...(name !== undefined && name !== '' && { name, ddoc: name }),
      ...(info?.props?.partitioned === true && { partitioned: isPartitioned }),
    },
  })
}
