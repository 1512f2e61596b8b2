/** Runs a view of a design document. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { pathOf } from '../../api/client.ts'
import { asFailure, type Failure, isAborted } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { Button } from '../../parts/button.tsx'
import { Field, SelectField } from '../../parts/field.tsx'
import { Empty, ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { hashOf, type Route } from '../../shell/hash.ts'
import { go } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'
import { askBoundedText } from './bounded-answer.ts'
import { readIndexPage, type ViewGroup } from './index-rows.ts'
import { ViewForm } from './view-form.tsx'
import { FIRST_OPTIONS, type ViewOptions, viewFaults, viewParameters } from './view-query.ts'
import { readRows, type ViewPage, ViewRows } from './view-rows.tsx'

/** Design documents that are offered. */
const MAX_PAGES = 5

interface ViewPartProps {
  readonly database: string
  /** The view that the address names. */
  readonly asked: Route['query']
}

interface Choice {
  readonly group: ViewGroup
  readonly view: ViewGroup['views'][number]
}

export function ViewPart({ database, asked }: ViewPartProps) {
  const { data, failure, reload } = useLoad((signal) => readViews(database, signal), database)
  if (failure !== null) return <ErrorNotice failure={failure} onRetry={reload} />
  if (data === undefined) return <Skeleton lines={6} />
  const choices = data.flatMap((group) => group.views.map((view): Choice => ({ group, view })))
  if (choices.length === 0) return <Empty title={en.queries.view.none}>{en.queries.view.noneHelp}</Empty>
  const chosen =
    choices.find(({ group, view }) => group.ddoc === asked.ddoc && view.name === asked.view) ?? choices[0]!
  return <ViewQuery key={keyOf(chosen)} database={database} choices={choices} chosen={chosen} />
}

async function readViews(database: string, signal: AbortSignal): Promise<readonly ViewGroup[]> {
  const groups: ViewGroup[] = []
  let after: string | null = ''
  for (let page = 0; after !== null && page < MAX_PAGES; page++) {
    const { indexes, next } = await readIndexPage(database, after, signal)
    for (const each of indexes) if (each.type === 'view') groups.push(each)
    after = next
  }
  return groups
}

interface ViewQueryProps {
  readonly database: string
  readonly choices: readonly Choice[]
  readonly chosen: Choice
}

function ViewQuery({ database, choices, chosen }: ViewQueryProps) {
  const { group, view } = chosen
  const hasReduce = view.reduce !== null
  const [options, setOptions] = useState<ViewOptions>({ ...FIRST_OPTIONS, isReduced: hasReduce })
  const [page, setPage] = useState<
    (ViewPage & { readonly skip: number; readonly options: ViewOptions }) | null
  >(null)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const running = useRef<AbortController | null>(null)
  useEffect(() => () => running.current?.abort(), [])
  const faults = viewFaults(options)
  const run = async (asked: ViewOptions, skip: number) => {
    running.current?.abort()
    const controller = new AbortController()
    running.current = controller
    setBusy(true)
    setFailure(null)
    try {
      const base = asked.partition === '' ? [database] : [database, '_partition', asked.partition]
      const path = pathOf(...base, group.ddoc, '_view', view.name)
      const query = viewParameters(asked, hasReduce, skip)
      const answer = await askBoundedText(path, { query, signal: controller.signal })
      setPage({ ...readRows(answer), skip, options: asked })
    } catch (error) {
      if (!isAborted(error) && running.current === controller) setFailure(asFailure(error))
    } finally {
      if (running.current === controller) setBusy(false)
    }
  }
  const submit = (event: Event) => {
    event.preventDefault()
    if (faults.length === 0 && group.runs) void run(options, 0)
  }
  return (
    <>
      <Card title={en.queries.view.title} lead={en.queries.view.lead}>
        <form class="stack" onSubmit={submit}>
          <SelectView choices={choices} chosen={chosen} database={database} />
          {group.runs ? (
            <>
              <ViewForm
                options={options}
                faults={faults}
                reduce={view.reduce}
                isPartitioned={group.partitioned}
                onChange={setOptions}
              />
              {!group.built && page === null && <Notice tone="info">{en.queries.view.notBuilt}</Notice>}
              <div class="row">
                <Button kind="primary" icon="play" type="submit" isBusy={isBusy} disabled={faults.length > 0}>
                  {en.queries.view.run}
                </Button>
                {isBusy && (
                  <Button kind="quiet" onClick={() => running.current?.abort()}>
                    {en.queries.find.stop}
                  </Button>
                )}
              </div>
            </>
          ) : (
            <Notice tone="warn">{en.queries.view.doesNotRun(group.language)}</Notice>
          )}
        </form>
        {failure !== null && <ErrorNotice failure={failure} title={en.queries.view.failed} />}
      </Card>
      {page !== null && (
        <ViewRows
          database={database}
          page={page}
          skip={page.skip}
          isBusy={isBusy}
          onMove={(skip) => void run(page.options, skip)}
        />
      )}
    </>
  )
}

function SelectView({ choices, chosen, database }: ViewQueryProps) {
  const names = [...new Set(choices.map(({ group }) => group.ddoc))]
  const show = ({ group, view }: Choice) =>
    go(hashOf(['databases', database, 'queries', 'view'], { ddoc: group.ddoc, view: view.name }))
  return (
    <div class="fields">
      <SelectField
        label={en.queries.view.ddoc}
        value={chosen.group.ddoc}
        options={names.map((name) => [name, name.replace(/^_design\//, '')] as const)}
        onChange={(name) => show(choices.find(({ group }) => group.ddoc === name) ?? chosen)}
      />
      <Field label={en.queries.view.view}>
        {(control) => (
          <select
            {...control}
            value={chosen.view.name}
            onChange={({ currentTarget: { value } }) =>
              show(choices.find(({ group, view }) => group === chosen.group && view.name === value) ?? chosen)
            }
          >
            {chosen.group.views.map(({ name }) => (
              <option key={name} value={name} selected={name === chosen.view.name}>
                {name}
              </option>
            ))}
          </select>
        )}
      </Field>
    </div>
  )
}

function keyOf({ group, view }: Choice): string {
  return `${group.ddoc} ${view.name}`
}
