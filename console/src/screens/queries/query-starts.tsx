/** Where a query can begin: examples, and the queries of before. */
import { useState } from 'preact/hooks'
import { Button } from '../../parts/button.tsx'
import { Field } from '../../parts/field.tsx'
import { en } from '../../strings/en.ts'
import { ago } from '../../strings/format.ts'
import { forgetQueries, type RecentQuery, recentQueries } from './recent-queries.ts'

interface Template {
  readonly key: keyof typeof en.queries.templates
  readonly body: object
}

const TEMPLATES: readonly Template[] = [
  { key: 'all', body: { selector: {} } },
  { key: 'equal', body: { selector: { type: 'note' } } },
  { key: 'range', body: { selector: { created: { $gte: '2026-01-01' } }, sort: [{ created: 'desc' }] } },
  { key: 'contains', body: { selector: { tags: { $elemMatch: { $eq: 'work' } } } } },
  { key: 'prefix', body: { selector: { _id: { $beginsWith: 'note:' } }, fields: ['_id', 'title'] } },
  { key: 'either', body: { selector: { $or: [{ status: 'open' }, { due: { $exists: true } }] } } },
  { key: 'conflicts', body: { selector: { _conflicts: { $exists: true } }, conflicts: true } },
]

/** Characters of a query in a list. */
const MAX_SHOWN = 70

interface QueryStartsProps {
  readonly database: string
  readonly onChoose: (text: string) => void
}

export function QueryStarts({ database, onChoose }: QueryStartsProps) {
  const [recent, setRecent] = useState(() => recentQueries(database))
  const template = (value: string) => {
    const found = TEMPLATES.find(({ key }) => key === value)
    if (found !== undefined) onChoose(`${JSON.stringify(found.body, null, 2)}\n`)
  }
  return (
    <div class="query-starts">
      <Field label={en.queries.find.template}>
        {(control) => (
          <select {...control} value="" onChange={({ currentTarget }) => choose(currentTarget, template)}>
            <option value="">{en.queries.find.choose}</option>
            {TEMPLATES.map(({ key }) => (
              <option key={key} value={key}>
                {en.queries.templates[key]}
              </option>
            ))}
          </select>
        )}
      </Field>
      {recent.length > 0 && (
        <Field label={en.queries.find.recent}>
          {(control) => (
            <div class="joined">
              <select
                {...control}
                value=""
                onChange={({ currentTarget }) =>
                  choose(currentTarget, (at) => onChoose(recent[Number(at)]?.text ?? ''))
                }
              >
                <option value="">{en.queries.find.choose}</option>
                {recent.map((query, at) => (
                  <option key={query.at} value={String(at)}>
                    {lineOf(query)}
                  </option>
                ))}
              </select>
              <Button
                icon="trash"
                label={en.queries.find.forget}
                onClick={() => {
                  forgetQueries(database)
                  setRecent([])
                }}
              />
            </div>
          )}
        </Field>
      )}
    </div>
  )
}

/** The list is a menu: what was chosen is in the editor. */
function choose(select: HTMLSelectElement, use: (value: string) => void): void {
  const { value } = select
  select.value = ''
  if (value !== '') use(value)
}

function lineOf({ text, at }: RecentQuery): string {
  const line = text.replace(/\s+/g, ' ').trim()
  const shown = line.length > MAX_SHOWN ? `${line.slice(0, MAX_SHOWN)}…` : line
  return `${shown} (${ago(at)})`
}
