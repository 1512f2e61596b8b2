/** The attachments of a document: looked at, added, downloaded and removed. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { addressOf, ask } from '../../api/client.ts'
import { asFailure, type Failure, isAborted } from '../../api/failure.ts'
import { isReachable } from '../../api/reachable.ts'
import { server } from '../../api/session.ts'
import { Button } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { Icon } from '../../parts/icon.tsx'
import { ErrorNotice } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { say } from '../../parts/toast.tsx'
import { en } from '../../strings/en.ts'
import { bytes } from '../../strings/format.ts'
import { AttachmentPreview } from './attachment-preview.tsx'
import type { Attachment, OpenDocument } from './document-text.ts'
import { attachmentPath, readDocument, type Saved } from './stored-document.ts'

const { documents: texts } = en

interface AttachmentsProps {
  readonly database: string
  readonly document: OpenDocument
  /** Called with the next revision; absent: they cannot be changed. */
  readonly onChange?: (next: OpenDocument) => void
}

interface Upload {
  readonly name: string
  readonly size: number
  readonly stop: AbortController
}

export function Attachments({ database, document, onChange }: AttachmentsProps) {
  const { id, attachments } = document
  const [shown, setShown] = useState<Attachment | null>(null)
  const [upload, setUpload] = useState<Upload | null>(null)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isOver, setOver] = useState(false)
  const picker = useRef<HTMLInputElement>(null)
  const running = useRef<AbortController | null>(null)
  useEffect(() => () => running.current?.abort(), [])
  const canChange = onChange !== undefined && !document.isDeleted && server.value?.isHosted !== true
  const add = async (files: readonly File[]) => {
    if (!canChange || upload !== null) return
    setFailure(null)
    const stop = new AbortController()
    running.current = stop
    let { rev } = document
    try {
      for (const file of files) {
        setUpload({ name: file.name, size: file.size, stop })
        const saved: Saved = await ask<Saved>(attachmentPath(database, id, file.name), {
          method: 'PUT',
          query: { rev: rev ?? undefined },
          body: file,
          headers: { 'Content-Type': file.type || 'application/octet-stream' },
          signal: stop.signal,
        })
        rev = saved.rev
        say(texts.attached(file.name))
      }
    } catch (error) {
      if (!isAborted(error)) setFailure(asFailure(error))
    }
    setUpload(null)
    if (rev !== document.rev) await readNext()
  }
  const readNext = async () => {
    try {
      onChange?.(await readDocument(database, id, undefined, new AbortController().signal))
    } catch (error) {
      setFailure(asFailure(error))
    }
  }
  const remove = ({ name }: Attachment) =>
    confirm({
      title: texts.detachTitle(name),
      effects: [texts.detachEffect],
      undo: texts.detachUndo,
      act: texts.detachAct,
      run: async () => {
        await ask(attachmentPath(database, id, name), {
          method: 'DELETE',
          query: { rev: document.rev ?? undefined },
        })
        say(texts.detached(name))
        await readNext()
      },
    })
  const address = ({ name }: Attachment) =>
    addressOf(attachmentPath(database, id, name), { rev: document.rev ?? undefined })
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: dropping is a second way beside the button
    <div
      class={isOver ? 'attachments is-over' : 'attachments'}
      onDragOver={(event) => {
        if (!canChange) return
        event.preventDefault()
        setOver(true)
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        if (!canChange) return
        event.preventDefault()
        setOver(false)
        void add([...(event.dataTransfer?.files ?? [])])
      }}
    >
      <Card
        title={texts.attachments}
        actions={
          canChange && (
            <Button isSmall icon="upload" disabled={upload !== null} onClick={() => picker.current?.click()}>
              {texts.attach}
            </Button>
          )
        }
      >
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          aria-label={texts.attach}
          onChange={(event) => {
            void add([...(event.currentTarget.files ?? [])])
            event.currentTarget.value = ''
          }}
        />
        {upload !== null && (
          <div class="row attachment-busy" role="status">
            <span class="spinner" aria-hidden="true" />
            <span class="grow">{texts.attaching(upload.name, bytes(upload.size))}</span>
            <Button isSmall onClick={() => upload.stop.abort()}>
              {en.common.cancel}
            </Button>
          </div>
        )}
        {failure !== null && <ErrorNotice failure={failure} title={texts.notAttached} />}
        {attachments.length === 0 && upload === null && (
          <p class="fine">
            {server.value?.isHosted
              ? texts.noAttachmentsHosted
              : canChange
                ? texts.noAttachmentsYet
                : texts.noAttachments}
          </p>
        )}
        {attachments.length > 0 && (
          <ul class="attachment-list">
            {attachments.map((attachment) =>
              isReachable(attachmentPath(database, id, attachment.name)) ? (
                <AttachmentRow
                  key={attachment.name}
                  attachment={attachment}
                  address={address(attachment)}
                  onShow={() => setShown(attachment)}
                  {...(canChange && { onRemove: () => remove(attachment) })}
                />
              ) : (
                <li key={attachment.name}>
                  <Icon name="file" />
                  <div class="attachment-name">
                    <span>{attachment.name}</span>
                    <span class="fine">{en.common.unreachableName}</span>
                  </div>
                </li>
              ),
            )}
          </ul>
        )}
      </Card>
      {shown !== null && (
        <AttachmentPreview attachment={shown} address={address(shown)} onClose={() => setShown(null)} />
      )}
    </div>
  )
}

interface AttachmentRowProps {
  readonly attachment: Attachment
  readonly address: string
  readonly onShow: () => void
  /** Absent: it cannot be removed. */
  readonly onRemove?: () => void
}

function AttachmentRow({
  attachment: { name, length, type },
  address,
  onShow,
  onRemove,
}: AttachmentRowProps) {
  return (
    <li>
      <Icon name="file" />
      <div class="attachment-name">
        <button type="button" class="link" onClick={onShow}>
          {name}
        </button>
        <span class="fine">
          {bytes(length)} · {type}
        </span>
      </div>
      <a
        class="button is-quiet is-small"
        href={address}
        download={name.split('/').at(-1)}
        aria-label={texts.download(name)}
        title={texts.download(name)}
      >
        <Icon name="download" />
      </a>
      {onRemove !== undefined && (
        <Button isSmall kind="quiet" icon="trash" label={texts.detach(name)} onClick={onRemove} />
      )}
    </li>
  )
}
