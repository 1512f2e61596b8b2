// Answers each call with the replies in its first argument, to test the other end.
import { parentPort } from 'node:worker_threads'

const seen = { next: 0, cancel: 0, limits: 0 }

parentPort.on('message', (requests) => {
  for (const request of requests) {
    if (request.type in seen) seen[request.type] += 1
    if (request.type === 'cancel') parentPort.postMessage([{ type: 'end', call: request.call }])
    if (request.type === 'stop') parentPort.postMessage([{ type: 'answer', call: request.call }])
    if (request.type === 'call') play(request)
  }
})

function play({ call, args: [script] }) {
  if (script === 'die') throw new Error('the thread has died')
  const replies = script === 'seen' ? [{ type: 'answer', value: { ...seen } }] : script
  parentPort.postMessage(replies.map((reply) => (reply.type === 'committed' ? reply : { call, ...reply })))
}
