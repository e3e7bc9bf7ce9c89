#include "api/trace.hpp"

namespace outbox {

static bool has(Datum headers, const char *name)
{
    return DatumGetBool(DirectFunctionCall2(jsonb_exists, headers, CStringGetTextDatum(name)));
}

static void add(JsonbParseState **state, const char *name, char *value)
{
    if (*value == '\0')
        return;
    JsonbValue text;
    text.type = jbvString;
    text.val.string.val = const_cast<char *>(name);
    text.val.string.len = static_cast<int>(strlen(name));
    pushJsonbValue(state, WJB_KEY, &text);
    text.val.string.val = value;
    text.val.string.len = static_cast<int>(strlen(value));
    pushJsonbValue(state, WJB_VALUE, &text);
}

Datum with_trace(Datum headers, bool null)
{
    // What is no object is refused in a moment, as it was given.
    if (!null && !JB_ROOT_IS_OBJECT(DatumGetJsonbP(headers)))
        return headers;
    JsonbParseState *state = nullptr;
    pushJsonbValue(&state, WJB_BEGIN_OBJECT, nullptr);
    add(&state, "traceparent", settings::traceparent);
    // It belongs to our traceparent, not to one that the caller gives.
    if (null || !has(headers, "traceparent"))
        add(&state, "tracestate", settings::tracestate);
    add(&state, "baggage", settings::baggage);
    Datum ours = JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, nullptr)));
    return null ? ours : DirectFunctionCall2(jsonb_concat, ours, headers);  // of two members of a name the second stays
}

}  // namespace outbox
