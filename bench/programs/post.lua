-- For wrk: a request of the size that a sink sends. Nothing is signed.
wrk.method = "POST"
wrk.body = '{"type":"order_captured","timestamp":"2026-01-01T00:00:00.000000Z","event_id":"019e1f6a-2c8b-7d3e-9a41-5b6c7d8e9f00",' ..
    '"aggregate_type":"order","aggregate_id":"key-123","data":{"note": "' .. string.rep("x", 288) .. '"}}'
wrk.headers["Content-Type"] = "application/json"
wrk.headers["webhook-id"] = "019e1f6a-2c8b-7d3e-9a41-5b6c7d8e9f00"
wrk.headers["webhook-timestamp"] = "1767225600"
wrk.headers["webhook-signature"] = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
