import { Button } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { Badge } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { type Column, DataTable } from '../../parts/table.tsx'
import { say } from '../../parts/toast.tsx'
import { en } from '../../strings/en.ts'
import { ago, bytes, time } from '../../strings/format.ts'
import { type Backup, type Backups, deleteBackup } from './settings-api.ts'

const { backups: texts } = en.settings

interface BackupListProps {
  readonly backups: Backups
  readonly onVerify: (id: string) => void
  readonly onRestore: (backup: Backup) => void
  readonly onDeleted: () => void
}

export function BackupList({
  backups: { backups, verifying },
  onVerify,
  onRestore,
  onDeleted,
}: BackupListProps) {
  const newestGood = backups.find((each) => each.verified && each.is_whole)?.id
  const columns: readonly Column<Backup>[] = [
    {
      key: 'when',
      title: texts.when,
      isMain: true,
      cell: ({ begun_at: at, id }) => (
        <div class="backup-cell" title={id}>
          {time(at)}
          <p class="fine">{ago(at)}</p>
        </div>
      ),
    },
    { key: 'holds', title: texts.holds, cell: (backup) => <Holds backup={backup} /> },
    { key: 'size', title: texts.size, isNumber: true, cell: (backup) => <Size backup={backup} /> },
    { key: 'state', title: texts.state, cell: (backup) => <State backup={backup} /> },
    {
      key: 'actions',
      title: texts.actions,
      isUntitled: true,
      cell: (backup) => (
        <div class="row is-end backup-actions">
          <Button
            isSmall
            icon="check"
            label={texts.verifyOf(backup.id)}
            isBusy={verifying?.id === backup.id}
            disabled={verifying !== null && verifying.id !== backup.id}
            onClick={() => onVerify(backup.id)}
          >
            {texts.verify}
          </Button>
          <Button
            isSmall
            icon="restore"
            label={texts.restoreOf(backup.id)}
            disabled={backup.databases === 0}
            onClick={() => onRestore(backup)}
          >
            {texts.restore}
          </Button>
          <Button
            isSmall
            kind="danger"
            icon="trash"
            label={texts.deleteOf(backup.id)}
            onClick={() => askToDelete(backup, backup.id === newestGood, onDeleted)}
          />
        </div>
      ),
    },
  ]
  return (
    <Card isFlush>
      <DataTable caption={texts.list} columns={columns} rows={backups} keyOf={({ id }) => id} />
    </Card>
  )
}

function Holds({ backup }: { readonly backup: Backup }) {
  return (
    <div class="backup-cell">
      {en.words.databases(backup.databases)}
      <p class="fine">{backup.is_whole ? texts.whole : texts.some}</p>
    </div>
  )
}

function Size({ backup }: { readonly backup: Backup }) {
  const isShared = backup.new_bytes < backup.bytes
  return (
    <div title={isShared ? texts.newBytesHint : undefined}>
      {bytes(backup.bytes)}
      {isShared && <p class="fine">{texts.newBytes(bytes(backup.new_bytes))}</p>}
    </div>
  )
}

function State({
  backup: { verified, verified_at: at, damage, damaged, left_out: leftOut },
}: {
  readonly backup: Backup
}) {
  return (
    <div class="backup-state">
      <p>
        <Badge tone={verified ? 'good' : 'bad'}>{verified ? texts.verified : texts.damaged}</Badge>{' '}
        {leftOut.length + damaged.length > 0 && <Badge tone="warn">{texts.incomplete}</Badge>}
      </p>
      <p class="fine">{verified ? ago(at) : texts.verifiedAt(ago(at))}</p>
      {damage.map((line) => (
        <p key={line} class="fine is-code">
          {line}
        </p>
      ))}
      {leftOut.map(({ name, reason }) => (
        <p key={name} class="fine">
          {texts.leftOut(name, reason)}
        </p>
      ))}
      {damaged.map(({ name, count }) => (
        <p key={name} class="fine">
          {texts.damagedParts(name, count)}
        </p>
      ))}
    </div>
  )
}

function askToDelete(backup: Backup, isNewest: boolean, onDeleted: () => void): void {
  const { id } = backup
  confirm({
    title: texts.deleteTitle(id),
    effects: [...texts.deleteEffects(bytes(backup.new_bytes)), ...(isNewest ? [texts.deleteNewest] : [])],
    undo: null,
    typed: id,
    act: texts.delete,
    run: async () => {
      await deleteBackup(id)
      say(texts.deleted(id))
      onDeleted()
    },
  })
}
