/** Settings and admins that come along. */
import { Badge } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { DataTable } from '../../parts/table.tsx'
import { en } from '../../strings/en.ts'
import type { Move, MoveSetting } from './move-answers.ts'

const { move: texts } = en.replication

export function MoveSettings({ move: { settings, state } }: { readonly move: Move }) {
  const isDone = state === 'done'
  return (
    <Card title={texts.settingsTitle} lead={texts.settingsLead} isFlush>
      <DataTable
        caption={texts.settingsTitle}
        columns={[
          { key: 'key', title: texts.setting, isMain: true, cell: nameOf },
          {
            key: 'value',
            title: texts.value,
            cell: ({ value }: MoveSetting) =>
              value === null ? <span class="soft">{texts.secret}</span> : <code>{value}</code>,
          },
          {
            key: 'outcome',
            title: texts.outcome,
            cell: ({ outcome, reason }: MoveSetting) => (
              <div class="job-state">
                <span>
                  <Badge
                    tone={outcome === 'refused' ? 'bad' : outcome === 'set' && isDone ? 'good' : 'plain'}
                  >
                    {isDone ? texts.became[outcome] : texts.becomes[outcome]}
                  </Badge>
                </span>
                {reason !== null && <span class="fine">{reason}</span>}
              </div>
            ),
          },
        ]}
        rows={settings ?? []}
        keyOf={({ section, key }) => `${section}/${key}`}
      />
    </Card>
  )
}

function nameOf({ section, key }: MoveSetting): string {
  return section === 'admins' ? texts.admin(key) : `${section} / ${key}`
}
