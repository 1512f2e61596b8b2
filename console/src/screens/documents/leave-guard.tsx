import { useEffect, useRef, useState } from 'preact/hooks'
import { Button } from '../../parts/button.tsx'
import { Dialog } from '../../parts/dialog.tsx'
import { hashOf, type Route } from '../../shell/hash.ts'
import { go, guardRoute } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'

const { documents: texts } = en

/** While it is in the page, leaving asks first. `onDiscard` is called before the page is left without saving. */
export function LeaveGuard({ onDiscard }: { readonly onDiscard: () => void }) {
  const [next, setNext] = useState<Route | null>(null)
  // The guard may have left the page when the route changes, or still be in it.
  const isLeaving = useRef(false)
  useEffect(() => {
    const remove = guardRoute((to) => {
      if (isLeaving.current) return true
      setNext(to)
      return false
    })
    const onUnload = (event: BeforeUnloadEvent) => event.preventDefault()
    addEventListener('beforeunload', onUnload)
    return () => {
      remove()
      removeEventListener('beforeunload', onUnload)
    }
  }, [])
  if (next === null) return null
  const footer = (
    <>
      <Button
        kind="danger"
        onClick={() => {
          isLeaving.current = true
          onDiscard()
          go(hashOf(next.path, next.query))
        }}
      >
        {texts.leaveDiscard}
      </Button>
      <Button kind="primary" type="submit">
        {texts.leaveStay}
      </Button>
    </>
  )
  return (
    <Dialog
      title={texts.leaveTitle}
      footer={footer}
      onClose={() => setNext(null)}
      onSubmit={() => setNext(null)}
    >
      <p>{texts.leaveText}</p>
    </Dialog>
  )
}
