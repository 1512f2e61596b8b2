/** What a database has, what it takes, and what can be done with the whole of it. */

import { ask, pathOf } from '../../api/client.ts'
import { useLoad } from '../../api/load.ts'
import { user } from '../../api/session.ts'
import { AlarmsPart } from '../../parts/alarms-part.tsx'
import { Button } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card, Facts } from '../../parts/page.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { go } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'
import { bytes, number } from '../../strings/format.ts'
import { AccessBadge } from './access-badge.tsx'
import { CompactionCard } from './compaction-card.tsx'
import { ConflictsCard } from './conflicts-card.tsx'
import type { DatabaseRow } from './database-answers.ts'
import { readDatabase } from './database-calls.ts'
import type { DatabasePartProps } from './database-part.ts'
import { GrowthCard } from './growth-card.tsx'
import { SizeCard } from './size-card.tsx'
import './databases.css'

const texts = en.databases.summary

export default function SummaryPart({ database }: DatabasePartProps) {
  const { data, failure, reload } = useLoad((signal) => readDatabase(database, signal), database, {
    every: 10_000,
  })
  if (data === undefined) {
    return failure === null ? (
      <Card>
        <Skeleton lines={6} />
      </Card>
    ) : (
      <ErrorNotice failure={failure} title={texts.notLoaded} onRetry={reload} />
    )
  }
  const mayAdminister = data.role === 'admin' || data.owner === user.value?.name
  return (
    <div class="stack">
      {failure !== null && <ErrorNotice failure={failure} title={texts.notLoaded} onRetry={reload} />}
      {data.role === 'admin' && <AlarmsPart databases={[database]} />}
      <Card>
        <Facts facts={facts(data)} />
      </Card>
      <div class="grid">
        <GrowthCard database={database} now={data} />
        {mayAdminister && <SizeCard database={database} isCompacting={data.compact_running} />}
      </div>
      <ConflictsCard database={database} />
      {data.role === 'admin' && <CompactionCard database={data} onChange={reload} />}
      {mayDelete(data) && <DeleteCard database={data} />}
    </div>
  )
}

function facts(row: DatabaseRow) {
  const href = hashOf(['databases', row.name, 'access'])
  return [
    { term: texts.documents, value: number(row.doc_count) },
    { term: texts.deleted, value: number(row.doc_del_count) },
    { term: texts.file, value: bytes(row.sizes.file) },
    {
      term: texts.access,
      value: (
        <a href={href} class="badge-link">
          <AccessBadge access={row.access} />
        </a>
      ),
    },
    ...(row.owner === undefined ? [] : [{ term: texts.owner, value: row.owner ?? texts.noOwner }]),
    ...(row.partitioned ? [{ term: texts.kind, value: texts.partitioned }] : []),
  ]
}

function mayDelete({ name, owner }: DatabaseRow): boolean {
  if (name.startsWith('_')) return false
  return user.value?.isAdmin === true || (owner !== undefined && owner === user.value?.name)
}

function DeleteCard({ database: { name, doc_count } }: { readonly database: DatabaseRow }) {
  const act = () =>
    confirm({
      title: texts.deleteTitle(name),
      effects: [texts.deleteEffect(doc_count), texts.deleteDevices],
      undo: user.value?.isAdmin ? texts.deleteUndo : texts.deleteUndoByAdmin,
      typed: name,
      act: texts.delete,
      run: async () => {
        await ask(pathOf(name), { method: 'DELETE' })
        say(texts.deletedDone(name))
        go(hashOf(['databases']))
      },
    })
  return (
    <Card title={texts.deleteHeading} lead={texts.deleteLead}>
      <div class="actions">
        <Button kind="danger" icon="trash" onClick={act}>
          {texts.delete}
        </Button>
      </div>
    </Card>
  )
}
