#include "core/json.hpp"

#include <gtest/gtest.h>

#include <string>

#include "core/base64.hpp"
#include "core/utf8.hpp"

using namespace outbox::core;

namespace {

std::string json(std::string_view text) {
    Buffer out;
    append_json_string(out, text);
    return std::string(out.view());
}

std::string base64(std::string_view bytes) {
    Buffer out;
    append_base64(out, bytes);
    return std::string(out.view());
}

struct Parsed {
    bool good = false;
    std::vector<JsonMember> members;
    Buffer decoded;
};

Parsed parse(std::string_view text) {
    Parsed parsed;
    parsed.good = parse_flat_object(text, parsed.members, parsed.decoded);
    return parsed;
}

FlatObjectReader::Step outcome(std::string_view text) {
    FlatObjectReader reader(text);
    FlatObjectReader::Member member;
    FlatObjectReader::Step step;
    while ((step = reader.next(member)) == FlatObjectReader::Step::member) {
    }
    EXPECT_EQ(reader.next(member), step) << "it keeps saying how it ended";
    return step;
}

}  // namespace

TEST(JsonString, EscapesWhatJsonDemandsAndNothingElse) {
    EXPECT_EQ(json(""), R"("")");
    EXPECT_EQ(json("plain / <b> 'x'"), R"("plain / <b> 'x'")");
    EXPECT_EQ(json("he said \"hi\" \\ /"), R"("he said \"hi\" \\ /")");
    EXPECT_EQ(json("\b\f\n\r\t"), R"("\b\f\n\r\t")");
    EXPECT_EQ(json(std::string_view("\0\x01\x1f\x7f", 4)), "\"\\u0000\\u0001\\u001f\x7f\"");
    EXPECT_EQ(json("ключ 😀"), "\"ключ 😀\"");
}

TEST(FlatObject, ReadsStringsAndNulls) {
    const Parsed p = parse(R"({"a": "1", "b": null, "c": ""})");
    ASSERT_TRUE(p.good);
    ASSERT_EQ(p.members.size(), 3u);
    EXPECT_EQ(p.members[0].name, "a");
    EXPECT_EQ(p.members[0].value, "1");
    EXPECT_FALSE(p.members[0].null);
    EXPECT_TRUE(p.members[1].null);
    EXPECT_FALSE(p.members[2].null);
    EXPECT_NE(p.members[2].value.data(), nullptr);
    EXPECT_EQ(p.members[2].value, "");
}

TEST(FlatObject, ReadsTheEmptyObjectAndSpaceAnywhere) {
    EXPECT_TRUE(parse("{}").good);
    EXPECT_TRUE(parse(" \t\r\n{ } ").good);
    EXPECT_EQ(parse(" { \"a\" :\n\"b\" , \"c\":null } ").members.size(), 2u);
}

TEST(FlatObject, DecodesEveryEscape) {
    const Parsed p = parse(R"({"\u0041\u00e9\"": "\\ \/ \b\f\n\r\t \u20AC \ud83d\ude00"})");
    ASSERT_TRUE(p.good);
    EXPECT_EQ(p.members[0].name, "Aé\"");
    EXPECT_EQ(p.members[0].value, "\\ / \b\f\n\r\t € 😀");
}

TEST(FlatObject, ManyDecodedViewsStayValid) {
    std::string text = "{";
    for (int i = 0; i < 10'000; ++i) {
        text += (i ? "," : "") + std::string("\"\\u0041") + std::to_string(i) + "\":\"\\n" + std::to_string(i) + "\"";
    }
    const Parsed p = parse(text + "}");
    ASSERT_TRUE(p.good);
    ASSERT_EQ(p.members.size(), 10'000u);
    for (int i = 0; i < 10'000; ++i) {
        ASSERT_EQ(p.members[static_cast<std::size_t>(i)].name, "A" + std::to_string(i));
        ASSERT_EQ(p.members[static_cast<std::size_t>(i)].value, "\n" + std::to_string(i));
    }
}

TEST(FlatObject, SaysWhatIsWrong) {
    using Step = FlatObjectReader::Step;
    for (const char* text : {"", " ", "[]", R"("str")", "null", "1", "x"}) {
        EXPECT_EQ(outcome(text), Step::not_an_object) << text;
    }
    for (const char* text : {R"({"a":1})", R"({"a":true})", R"({"a":{"x":1}})", R"({"a":["b"]})", R"({"a":nul})"}) {
        EXPECT_EQ(outcome(text), Step::not_a_string) << text;
    }
    for (const char* text : {"{",
                             "{\"",
                             "{\"a",
                             R"({"a")",
                             R"({"a":)",
                             R"({"a":"b)",
                             R"({"a":"b")",
                             R"({"a":"b",)",
                             R"({"a":"b",})",
                             R"({"a":"b" "c":"d"})",
                             R"({"a":"b"}x)",
                             R"({"a":"b"}{)",
                             R"({,})",
                             R"({a:"b"})",
                             R"({"a":nullx})",
                             R"({"a":"\x"})",
                             R"({"a":"\u12"})",
                             R"({"a":"\u12g4"})",
                             R"({"a":"\)",
                             R"({"a":"\ud83d"})",
                             R"({"a":"\ud83dx"})",
                             R"({"a":"\ud83d\u0041"})",
                             R"({"a":"\ude00"})",
                             R"({"a":"\u0000"})",
                             "{\"a\":\"\n\"}",
                             R"({"a":"\ud83d\)",
                             R"({"a":"\ud83d\u)"}) {
        EXPECT_EQ(outcome(text), Step::malformed) << text;
        EXPECT_FALSE(parse(text).good) << text;
    }
}

TEST(FlatObject, DeepNestingIsRefusedWithoutDescending) {
    std::string text = R"({"a":)";
    text.append(5'000'000, '[');
    EXPECT_FALSE(parse(text).good);
}

TEST(Utf8, AcceptsWhatIsUtf8) {
    EXPECT_TRUE(is_utf8(""));
    EXPECT_TRUE(is_utf8("plain text longer than eight bytes"));
    EXPECT_TRUE(is_utf8("ключ € 😀 \xF4\x8F\xBF\xBF \xEE\x80\x80 \xED\x9F\xBF"));
}

TEST(Utf8, RefusesWhatIsNot) {
    for (const char* text : {"\x80", "abcdefgh\xFF", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF",
                             "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
                             "\xF8\x88\x80\x80\x80", "\xC3", "\xE2\x82", "\xF0\x9F\x98", "\xC3(", "abc\xE2\x28\xA1"}) {
        EXPECT_FALSE(is_utf8(text)) << testing::PrintToString(text);
    }
}

TEST(Utf8, WritesWhatItReads) {
    for (const char32_t c : {0x00u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFDu, 0x10000u, 0x1F600u, 0x10FFFFu}) {
        Buffer out;
        append_utf8(out, c);
        const char* at = out.view().data();
        EXPECT_EQ(read_utf8(at, out.view().data() + out.size()), c);
        EXPECT_EQ(at, out.view().data() + out.size());
    }
}

TEST(Base64, MatchesTheVectorsOfTheRfc) {
    EXPECT_EQ(base64(""), "");
    EXPECT_EQ(base64("f"), "Zg==");
    EXPECT_EQ(base64("fo"), "Zm8=");
    EXPECT_EQ(base64("foo"), "Zm9v");
    EXPECT_EQ(base64("foob"), "Zm9vYg==");
    EXPECT_EQ(base64("fooba"), "Zm9vYmE=");
    EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
    EXPECT_EQ(base64(std::string_view("\xFF\xFE\xFD\x00", 4)), "//79AA==");
}
